"""Kinds of fleets without their clusters: Slurm's by submitit on this machine, Kubernetes' against a small API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.fake_kubernetes import kubernetes, node
from tests.remote.fleet_sites import FleetSite, fleet_site
from visualprof.remote import fleets
from visualprof.remote.agent.errors import AgentError
from visualprof.remote.fleets.kinds import slurm
from visualprof.remote.fleets.kinds.ray import KIND as RAY

SINFO = """\
c1|cpu*|idle|64|257000|(null)|avx512,ib
c2|cpu*|mixed|64|257000|(null)|avx512,ib
c3|cpu*|idle~|64|257000|(null)|avx512,ib
c4|cpu*|down*|64|257000|(null)|avx512,ib
g1|gpu|allocated|96|1000000|gpu:a100:4(S:0-1),tmpdisk:100|nvlink
g1|long|allocated|96|1000000|gpu:a100:4(S:0-1),tmpdisk:100|nvlink
g2|gpu|drained|96|1000000|gpu:4|(null)
"""


def test_kinds_are_found_without_their_packages() -> None:
    assert sorted(fleets.all_kinds()) == ["kubernetes", "ray", "slurm"]


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("mesos", {}, "unknown kind of fleet 'mesos'"),
        ("http://host", {}, "unknown kind of fleet 'http://host'"),
        ("ray", {"queue": "x"}, "a fleet of ray has no option 'queue'"),
        ("kubernetes", {"image": "x"}, "needs --fleet-cpus"),
    ],
)
def test_invalid_configurations_are_rejected(text: str, options: dict[str, str], error: str) -> None:
    with pytest.raises(AgentError, match=error):
        fleets.open_fleet(text, options, 0)


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_a_missing_package_names_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    kind = fleets.all_kinds()[name]
    monkeypatch.setattr(
        f"visualprof.remote.fleets.kinds.{name}.importlib", type("", (), {"import_module": staticmethod(absent)})
    )
    with pytest.raises(AgentError) as error:
        kind.open("", {"image": "x"})
    assert error.value.hint == f"pip install 'visualprof[{name}]'"


def test_nodes_are_read_from_sinfo() -> None:
    nodes = {node.name: node for node in slurm.parse_nodes(SINFO, [])}
    assert {name: node.state for name, node in nodes.items()} == {
        "c1": "ready",
        "c2": "ready",
        "c3": "ready",
        "c4": "away",
        "g1": "ready",
        "g2": "away",
    }
    assert nodes["c1"].kind == nodes["c3"].kind != nodes["g1"].kind
    assert (nodes["g1"].gpus, nodes["g2"].gpus, nodes["c1"].gpus) == (4, 4, 0)
    assert (nodes["c1"].cores, nodes["c1"].memory_bytes) == (64, 257000 * 2**20)
    assert nodes["g1"].labels == {"partition": "gpu", "features": "nvlink"}
    assert [node.name for node in slurm.parse_nodes(SINFO, ["nvlink"])] == ["g1"]


def test_nonsense_of_sinfo_is_left_out() -> None:
    assert slurm.parse_nodes("\n|||\nn1|p|idle|many|1|(null)|\n", []) == []


def test_labels_choose_nodes() -> None:
    assert fleets.has_labels({"zone": "a", "disk": "ssd"}, "zone=a, disk=ssd")
    assert fleets.has_labels({}, "")
    assert not fleets.has_labels({"zone": "b"}, "zone=a")


def test_ray_takes_only_its_own_addresses() -> None:
    assert RAY.schemes == ("ray",)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('{"answer": "succeeded"}', "ended"),
        ('{"error": "no server"}', "failed"),
        ("", "lost"),
        ("Killed", "lost"),
        ("[]", "lost"),
    ],
)
def test_an_answer_contains_the_outcome(text: str, state: str) -> None:
    assert fleets.parse_answer(text).state == state


@pytest.mark.slow
def test_a_removed_pod_is_lost_and_leaves_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("kubernetes")
    with kubernetes(tmp_path, node("n1")) as (cluster, config):
        monkeypatch.setattr(package.config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(config))
        cluster.held = True
        fleet = fleets.all_kinds()["kubernetes"].open("kubernetes://here", {"image": "x"})
        assert [item.name for item in fleet.nodes()] == ["n1"]
        placed = fleet.place("{}", fleets.PlacementRequest("n1", "n1"))
        assert (placed.poll().state, len(cluster.secrets)) == ("waiting", 1)
        cluster.pods.clear()
        assert placed.poll() == fleets.PlacementStatus("lost", "the pod was deleted")
        assert not cluster.secrets


def test_an_unresponsive_cluster_loses_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("kubernetes")
    with kubernetes(tmp_path, node("n1")) as (cluster, config):
        monkeypatch.setattr(package.config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(config))
        cluster.held = True
        fleet = fleets.all_kinds()["kubernetes"].open("kubernetes://here", {"image": "x"})
        fleet.nodes()
        placed = fleet.place("{}", fleets.PlacementRequest("n1", "n1"))
    assert placed.poll().state == "running"
    placed.cancel()
    with pytest.raises(AgentError, match="Kubernetes does not answer"):
        fleet.nodes()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FleetSite]:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    with fleet_site(tmp_path) as new_fleet:
        yield new_fleet


def measured(site: FleetSite) -> None:
    """One job from its submission to its result."""
    task = site.ended(site.submit())
    assert (task["state"], task["attempt"], task["warnings"]) == ("succeeded", 1, []), task
    assert (site.server.folder / task["run"] / "points.jsonl").is_file()


def cancelled(site: FleetSite, job: str) -> None:
    began = time.monotonic()
    site.http("POST", f"/api/v1/jobs/{job}/cancel")
    assert site.ended(job)["state"] == "cancelled"
    assert time.monotonic() - began < 5


@pytest.mark.slow
@pytest.mark.long
def test_submitit_runs_tasks(site: FleetSite, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    site.start_agent(
        "--fleet", "slurm", "--fleet-option", "cluster=local", "--fleet-option", f"folder={tmp_path / 'jobs'}"
    )
    assert [row["name"] for row in site.ready()] == [slurm.platform.node()]
    measured(site)
    long = site.submit(20.0)
    site.in_phase(long, "measuring")
    cancelled(site, long)


@pytest.mark.slow
@pytest.mark.long
def test_pods_run_tasks(site: FleetSite, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    big = node("n1", **{"node.kubernetes.io/instance-type": "big", "zone": "a"})
    away = node("n2", zone="a")
    away["spec"]["unschedulable"] = True
    with kubernetes(tmp_path, big, away, node("n3", zone="b")) as (cluster, config):
        options = ["--fleet-option", "image=registry/visualprof", "--fleet-option", "labels=zone=a"]
        site.start_agent("--fleet", "kubernetes", *options, "--fleet-cpus", "2", KUBECONFIG=str(config))
        (ready,) = site.ready()
        assert (ready["name"], ready["kind"], ready["cores"], ready["labels"]) == ("n1", "big", 3, {"zone": "a"})
        assert {row["name"]: row.get("state") for row in site.fleet()["capabilities"]["nodes"]}["n2"] == "away"
        measured(site)
        spec = cluster.specs[-1]
        assert spec["nodeSelector"] == {"kubernetes.io/hostname": "host-n1"}
        assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2"}
        assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
        site.until(lambda: not cluster.pods and not cluster.secrets)

        cluster.held = True  # a pod that waits for its node is taken back
        waits = site.submit()
        site.until(lambda: site.tasks(waits)[0]["state"] == "running")
        time.sleep(site.lease_s + 1)  # its lease is renewed meanwhile
        cancelled(site, waits)
        site.until(lambda: not cluster.pods and not cluster.secrets)

        cluster.held = False  # one that is killed is measured again, and says so
        lost = site.submit(3.0)
        site.in_phase(lost, "measuring")
        cluster.kill()
        task = site.ended(lost, 90)
        assert (task["state"], task["attempt"]) == ("succeeded", 2), task
        assert task["warnings"][0].startswith("measured again from the beginning (attempt 2)")
