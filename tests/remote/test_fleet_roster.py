"""Assignment of tasks to nodes and their outcomes, with a scheduler that runs nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import until
from tests.remote.queue_sites import capabilities, member, opened, request, runtime
from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.measuring_lock import device_file_name
from visualprof.remote.agent.machine.probe import Machine
from visualprof.remote.fleets import Fleet, Placement, PlacementRequest, PlacementStatus
from visualprof.remote.fleets.placed_task import PlacedTask
from visualprof.remote.fleets.roster import Roster
from visualprof.remote.protocol import Capabilities, Gpu, Intervals, Lease, Node, Offer, Spec, build
from visualprof.remote.queue.errors import PayloadTooLarge


class Call(Placement):
    """A call that is where somebody puts it."""

    def __init__(self, progress: PlacementStatus) -> None:
        self.progress = progress
        self.cancelled = False

    def poll(self) -> PlacementStatus:
        return self.progress

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeFleet(Fleet):
    """Nodes as they are set; a look answers with what the node's kind has."""

    has: dict[str, Capabilities]
    there: list[Node]
    silent: bool = False
    placed: list[tuple[str, PlacementRequest, Call]] = field(default_factory=list[tuple[str, PlacementRequest, Call]])

    def nodes(self) -> list[Node]:
        if self.silent:
            raise AgentError("no answer")
        return list(self.there)

    def place(self, order: str, wanted: PlacementRequest) -> Placement:
        response = self.has.get(wanted.kind)
        answer = (
            PlacementStatus("ended", json.dumps(asdict(Machine(response))))
            if response
            else PlacementStatus("failed", "no such module")
        )
        call = Call(answer if order.startswith("look") else PlacementStatus("waiting"))
        self.placed.append((order, wanted, call))
        return call

    def close(self) -> None: ...


def node(name: str, kind: str = "small", cores: int = 4, **more: Any) -> Node:
    return Node(name, kind, cores=cores, **more)


SMALL = capabilities("x86", [runtime()])
GPUS = replace(
    capabilities("cuda", [runtime("torch", "2.0", "cpu", "cuda:0")]), gpus=[Gpu("cuda:0", "a GPU", 80 << 30)]
)


def roster(fleet: FakeFleet, file: Path, cpus: int = 0, waiting: int = 0, said: list[str] | None = None) -> Roster:
    fleet_roster = Roster(
        fleet=fleet,
        file=file,
        order_for=lambda name: f"look {name}",
        say=(said if said is not None else []).append,
        cpus=cpus,
        memory_bytes=0,
        waiting=waiting,
    )
    fleet_roster.refresh()
    return fleet_roster


def lease(task: str = "t", spec: Spec | None = None, job: str = "j", **changes: Any) -> Lease:
    spec = spec or Spec("s", "onnxruntime", version="1.2")
    return Lease(
        task=task,
        job=job,
        run="run",
        attempt=1,
        lease="token",
        spec=spec,
        request=request("k", spec, **changes),
        files=[],
    )


CPU = Offer("x86", "onnxruntime", "1.2", "cpu")
TORCH = [Offer("cuda", "torch", "2.0", "cuda:0"), Offer("cuda", "torch", "2.0", "cpu")]


def test_a_node_of_each_kind_is_looked_at_once(tmp_path: Path) -> None:
    fleet = FakeFleet({"small": SMALL, "big": GPUS}, [node("a"), node("b"), node("g", "big", 8, gpus=2)])
    fleet_roster = roster(fleet, tmp_path / "kinds.json")
    assert [(order, wanted.node, wanted.gpus) for order, wanted, _ in fleet.placed] == [
        ("look a", "a", 0),
        ("look g", "g", 1),
    ]
    assert fleet_roster.offers() == [CPU, *TORCH]
    machine = fleet_roster.as_machine(SMALL, "ray").capabilities
    assert (machine.fleet, machine.cores, machine.platforms) == ("ray", 16, ["cuda", "x86"])
    assert [(item.name, item.state, item.platform) for item in machine.nodes] == [
        ("a", "ready", "x86"),
        ("b", "ready", "x86"),
        ("g", "ready", "cuda"),
    ]
    assert {(item.backend, *item.devices) for item in machine.runtimes} == {
        ("onnxruntime", "cpu"),
        ("torch", "cpu", "cuda:0"),
    }


def test_each_device_of_a_node_has_one_task(tmp_path: Path) -> None:
    fleet = FakeFleet({"big": GPUS}, [node("g", "big", 8, gpus=2)])
    fleet_roster = roster(fleet, tmp_path / "kinds.json")
    gpu, cpu = (Spec("s", "torch", version="2.0", device=device) for device in ("cuda:0", "cpu"))
    slots = [fleet_roster.reserve(lease(f"gpu{i}", gpu, f"job{i}")) for i in range(3)]
    assert [slot and (slot.wanted.node, slot.wanted.gpus, slot.wanted.cpus) for slot in slots] == [
        ("g", 1, 4),
        ("g", 1, 4),
        None,
    ]
    slot = fleet_roster.reserve(lease("cpu", cpu))
    assert slot
    assert (slot.wanted.gpus, slot.wanted.cpus, slot.wanted.timeout_s) == (0, 8, 900.0)
    assert fleet_roster.offers() == []
    assert fleet_roster.as_machine(SMALL, "ray").capabilities.nodes[0].tasks == ["cpu", "gpu0", "gpu1"]
    fleet_roster.release("gpu0")
    assert fleet_roster.offers() == [TORCH[0]]


def test_a_node_whose_task_was_lost_pauses(tmp_path: Path) -> None:
    fleet_roster = roster(FakeFleet({"small": SMALL}, [node("a")]), tmp_path / "kinds.json")
    assert fleet_roster.reserve(lease())
    fleet_roster.release("t", lost=True)
    assert fleet_roster.offers() == []


def test_tasks_wait_for_a_free_node_of_their_kind(tmp_path: Path) -> None:
    fleet = FakeFleet({"small": SMALL}, [node("a")])
    file = tmp_path / "kinds.json"
    assert roster(fleet, file, waiting=1).reserve(lease())
    fleet.there = []  # the scheduler has let the node go; what its kind has is known
    fleet_roster = roster(fleet, file, cpus=2, waiting=1)
    assert fleet_roster.offers() == [CPU]
    slot = fleet_roster.reserve(lease())
    assert slot
    assert (slot.wanted.node, slot.wanted.kind, slot.wanted.cpus) == ("", "small", 2)
    assert fleet_roster.offers() == []
    assert roster(fleet, file).offers() == []


def test_unavailable_nodes_give_their_reason(tmp_path: Path) -> None:
    messages: list[str] = []
    fleet = FakeFleet({"small": SMALL}, [node("a", state="away"), node("b", "bare")])
    fleet_roster = roster(fleet, tmp_path / "kinds.json", said=messages)
    values_by_name = {
        item.name: (item.state, item.note) for item in fleet_roster.as_machine(SMALL, "ray").capabilities.nodes
    }
    assert values_by_name == {"a": ("away", ""), "b": ("unusable", "it cannot be used: no such module")}
    assert messages == ["node b: it cannot be used: no such module"]
    assert fleet_roster.offers() == []


@pytest.mark.parametrize("text", ["", "[]", "{", '[{"node": 3}]', '{"a": 1}'])
def test_a_damaged_file_of_kinds_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "kinds.json").write_text(text)
    assert roster(FakeFleet({"small": SMALL}, [node("a")]), tmp_path / "kinds.json").offers() == [CPU]


def test_compared_specs_share_a_node_or_a_warning_is_given(tmp_path: Path) -> None:
    fleet_roster = roster(FakeFleet({"small": SMALL}, [node("a"), node("b")]), tmp_path / "kinds.json")
    first, second = fleet_roster.reserve(lease("one")), fleet_roster.reserve(lease("two"))
    assert first
    assert second
    assert (first.wanted.node, first.note) == ("a", "")
    assert (second.wanted.node, second.note) == (
        "b",
        "measured on b, another run configuration of this job on a: they do not share a machine",
    )
    fleet_roster.release("one")
    fleet_roster.release("two")
    third = fleet_roster.reserve(lease("three"))
    assert third
    assert (third.wanted.node, third.note) == ("a", "")
    spread = fleet_roster.reserve(lease("four", spread=True))
    assert spread
    assert spread.note == ""


# --- a placed task ---


def begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: FakeFleet
) -> tuple[PlacedTask, list[Any], Callable[[], str]]:
    """A task, the outcomes that it reports, and what waits for its end."""
    fleet_roster = roster(fleet, tmp_path / "kinds.json")
    slot, outcomes, ended = fleet_roster.reserve(lease()), list[Any](), list[str]()
    assert slot

    class Report:
        def __init__(self, _: Lease, context: object, outcome: Any) -> None:
            outcomes.append(outcome)

        def run(self) -> str:
            return "reported"

    monkeypatch.setattr("visualprof.remote.fleets.placed_task.LeasedTask", Report)
    context = cast(
        "Any", SimpleNamespace(on_change=lambda: None, registration=SimpleNamespace(intervals=Intervals(lease_s=0.3)))
    )
    task = PlacedTask(
        lease=lease(), slot=slot, fleet=fleet, roster=fleet_roster, context=context, order="work", say=lambda _: None
    )
    thread = threading.Thread(target=lambda: ended.append(task.run()))
    thread.start()

    def wait() -> str:
        thread.join(30)
        return ended[0]

    return task, outcomes, wait


def call_of(fleet: FakeFleet) -> Call:
    until(lambda: fleet.placed[-1][0] == "work")
    return fleet.placed[-1][2]


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"small": SMALL}, [node("a")])


def test_a_waiting_task_keeps_its_lease_and_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: FakeFleet
) -> None:
    task, outcomes, wait = begun(tmp_path, monkeypatch, fleet)
    call = call_of(fleet)
    assert task.heartbeat() == {"task": "t", "lease": "token"}
    task.end("cancelled")
    assert wait() == "reported"
    assert (call.cancelled, outcomes[0]["state"]) == (True, "cancelled")


def test_the_node_of_a_task_that_runs_renews_its_lease_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: FakeFleet
) -> None:
    task, outcomes, wait = begun(tmp_path, monkeypatch, fleet)
    call = call_of(fleet)
    call.progress = PlacementStatus("running")
    until(lambda: task.heartbeat() == {})  # both do for a lease, so that neither leaves it alone
    call.progress = PlacementStatus("ended", "succeeded")
    assert (wait(), outcomes, call.cancelled) == ("succeeded", [], False)


@pytest.mark.parametrize(
    ("progress", "said", "reported"),
    [
        (
            PlacementStatus("lost", "ActorDiedError"),
            "lost: ActorDiedError; the server leases it again when its lease expires",
            [],
        ),
        (PlacementStatus("failed", "no server"), "reported", ["node a: no server"]),
    ],
)
def test_a_lost_task_is_left_to_its_lease_and_a_failed_task_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fleet: FakeFleet,
    progress: PlacementStatus,
    said: str,
    reported: list[str],
) -> None:
    _, outcomes, wait = begun(tmp_path, monkeypatch, fleet)
    call_of(fleet).progress = progress
    assert wait() == said
    assert [(outcome["reason"], outcome["error"]) for outcome in outcomes] == [
        ("agent_error", error) for error in reported
    ]


def test_a_task_rejected_by_the_scheduler_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: FakeFleet
) -> None:
    place = fleet.place

    def refusing(order: str, wanted: PlacementRequest) -> Placement:
        if order == "work":
            raise AgentError("it is full")
        return place(order, wanted)

    monkeypatch.setattr(fleet, "place", refusing)
    _, outcomes, wait = begun(tmp_path, monkeypatch, fleet)
    assert wait() == "reported"
    assert outcomes[0]["error"] == "node a: the scheduler refused the task: it is full"


# --- the server ---


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (Spec("s", "onnxruntime"), ("cpu", "1.2")),
        (Spec("s", "torch", device="cuda"), ("cuda:0", "2.0")),
        (Spec("s", "torch", platform="cuda"), None),  # its CPU is not free there
        (Spec("s", "onnxruntime", platform="arm"), None),
        (Spec("s", "onnxruntime", version="1.3"), None),
    ],
)
def test_a_fleet_gets_tasks_that_a_free_node_can_run(tmp_path: Path, spec: Spec, fits: tuple[str, str] | None) -> None:
    nodes = [replace(node("a"), platform="x86"), replace(node("g", "big"), platform="cuda")]
    runtimes = [runtime(), runtime("torch", "2.0", "cpu", "cuda:0")]
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        agent = member(queue, known=replace(capabilities("x86", runtimes), fleet="ray", nodes=nodes))
        queue.jobs.submit(request("k", replace(spec, agent=agent.id)))
        claimed = queue.leases.lease(agent, [], 0, fleet=[CPU, TORCH[0]])
        assert (claimed and (claimed.spec.device, claimed.spec.version)) == fits


def test_a_fleet_says_more_of_itself_than_a_machine(tmp_path: Path) -> None:
    nodes = [node(f"node-{number}", tasks=["t"] * 8) for number in range(1000)]
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        agent_capabilities = replace(capabilities(), nodes=nodes)
        with pytest.raises(PayloadTooLarge):
            member(queue, known=agent_capabilities)
        assert len(member(queue, known=replace(agent_capabilities, fleet="ray")).capabilities.nodes) == 1000
        with pytest.raises(PayloadTooLarge):
            member(queue, known=replace(agent_capabilities, fleet="ray", nodes=nodes * 4))


def test_a_heartbeat_without_a_phase_leaves_it(tmp_path: Path) -> None:
    from visualprof.remote.queue.tasks.messages import TaskHeartbeat

    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        agent = member(queue)
        queue.jobs.submit(request("k"))
        claimed = queue.leases.lease(agent, ["cpu"], 0)
        assert claimed
        queue.leases.heartbeat(agent, [TaskHeartbeat(claimed.task, claimed.lease, "measuring", 0.5)])
        queue.leases.heartbeat(agent, [TaskHeartbeat(claimed.task, claimed.lease)])
        (task,) = queue.jobs.get(claimed.job).tasks
        assert (task.phase, task.progress) == ("measuring", 0.5)


@pytest.mark.parametrize(
    ("visible", "device", "name"),
    [
        ("", "cuda:1", "cuda_1"),
        ("3,5", "cuda:1", "cuda_5"),
        ("GPU-ab-c", "cuda:0", "cuda_GPU_ab_c"),
        ("3", "cpu", "cpu"),
    ],
)
def test_a_gpu_is_locked_by_its_place_among_all(
    monkeypatch: pytest.MonkeyPatch, visible: str, device: str, name: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device_file_name(device) == name


def test_an_order_survives_its_text(tmp_path: Path) -> None:
    from visualprof.remote.fleets.node import WorkOrder

    order = WorkOrder("http://host", "token", "agent", "fleet", lease=asdict(lease()), machine=asdict(Machine(SMALL)))
    read: WorkOrder = build(WorkOrder, json.loads(order.text()))
    assert build(Lease, read.lease) == lease()
    assert build(Machine, read.machine).capabilities == SMALL
