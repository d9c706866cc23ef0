"""Each rule on a trace that triggers it and on one that must not, with its gain worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, ui_texts
from visualprof.views.findings import REMARKS, RUN_FINDINGS
from visualprof.views.rules import all_rules

Events = list[dict[str, Any]]
STEPS = 3
ROOT = Path(__file__).parents[2]
MEMORY = 1 << 30
LOCALES = [ui_texts(language) for language in ("en", "zh")]
TRAINING = re.compile(
    r"(?i)train|loss|gradient|DataLoader|data loading|optimi[sz]er|epoch|checkpoint|AdamW|backward|"
    r"训练|损失|梯度|优化器|数据加载|检查点|反向"
)


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def call(name: str, ts: float, dur: float, number: int) -> dict[str, Any]:
    return event(name, ts, dur, "cuda_runtime", correlation=number)


def work(name: str, ts: float, dur: float, number: int, **args: Any) -> dict[str, Any]:
    cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    args = {"stream": 7, **args}
    named = event(name, ts, dur, cat, device=0, correlation=number, **args)
    return {**named, "pid": 0, "tid": args["stream"]}


def steps(length: float, *inside: tuple[dict[str, Any], ...] | list[dict[str, Any]]) -> Events:
    """Steps of so many us with events whose times are since the step's start; correlation ids are made distinct."""
    events: Events = []
    for number, own in enumerate(inside):
        events.append(event(f"ProfilerStep#{number}", length * number, length, "user_annotation"))
        for event_row in own:
            args = {**event_row["args"]}
            if "correlation" in args:
                args["correlation"] += 1000 * number
            events.append({**event_row, "ts": event_row["ts"] + length * number, "args": args})
    return events


def device_bound(*kernels: tuple[str, float], **args: Any) -> Events:
    """The host asks for a step's kernels in 100 us; they run one after the other, from 10 us on without a pause."""
    host: Events = []
    device: Events = []
    whole = sum(dur for _, dur in kernels)
    for number in range(STEPS):
        at = 10 + whole * number
        for place, (name, dur) in enumerate(kernels):
            host.append(call("cudaLaunchKernel", 5 * place, 2, place + 1))
            device.append(work(name, at, dur, 1000 * number + place + 1, **args))
            at += dur
    return [*steps(100, *[host[len(kernels) * n : len(kernels) * (n + 1)] for n in range(STEPS)]), *device]


def on_host(*names: tuple[str, float]) -> Events:
    """Operators one after the other, in steps of 1000 us."""
    step_events: Events = []
    at = 0.0
    for name, dur in names:
        step_events.append(event(name, at, dur))
        at += dur
    return steps(1000, *[step_events] * STEPS)


FIRST: dict[str, Any] = {"External id": 1}
FUSED = "void at::native::vectorized_elementwise_kernel<4>"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
BESIDE = [
    *steps(100, *[[call("cudaLaunchKernel", 0, 2, 1), call("cudaLaunchKernel", 5, 2, 2)]] * STEPS),
    *(work("gemm", 10 + 600 * n, 600, 1000 * n + 1) for n in range(STEPS)),
    *(work(ALLREDUCE, 15 + 600 * n, 600, 1000 * n + 2, stream=8) for n in range(STEPS)),
]


def waiting(until: float, copied: float) -> Events:
    """A kernel to 510 us, a copy to the host that is asked for at 20; operators from its return to 1000 us."""
    step_events = [
        call("cudaLaunchKernel", 0, 2, 1),
        work("gemm", 10, 500, 1),
        call("cudaMemcpyAsync", 20, until - 20, 2),
        work("Memcpy DtoH (Device -> Pageable)", copied, 5, 2),
        event("aten::item", 19, until - 18),
        event("aten::add", until + 1, 999 - until),
    ]
    return steps(1000, *[step_events] * STEPS)


def staged(kind: str) -> Events:
    """A copy to the device whose call takes 300 of 1000 us; the rest is an operator's."""
    step_events = [
        call("cudaMemcpyAsync", 0, 300, 1),
        work(f"Memcpy HtoD ({kind} -> Device)", 6, 296, 1),
        event("aten::add", 300, 700),
        call("cudaLaunchKernel", 900, 2, 2),
        work("gemm", 906, 20, 2),
    ]
    return steps(1000, *[step_events] * STEPS)


def sometimes(name: str, cat: str, *where: int) -> Events:
    """A call of 300 of 1000 us in some of three steps."""
    step_contents = [[event(name, 0, 300, cat)] if n in where else [] for n in range(STEPS)]
    return steps(1000, *[[*own, event("aten::add", 300, 700)] for own in step_contents])


def held(allocated: int, reserved: int = MEMORY * 9 // 10) -> Events:
    """A step with an allocation after which so much of the device's memory is held and so much of it in use."""
    args = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 512, "Total Reserved": reserved}
    instant = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 50, "s": "t"}
    return [*on_host(("aten::add", 1000)), {**instant, "args": {**args, "Total Allocated": allocated}}]


def launched(count: int, apart: float, each: float) -> Events:
    """Launches of 10 us that follow each other so far apart, each of a kernel of so many us; in steps of 1000 us."""
    calls = [
        (call("cudaLaunchKernel", apart * n, 10, n + 1), work("k", apart * n + 5, each, n + 1)) for n in range(count)
    ]
    return steps(1000, *[[one for pair in calls for one in pair]] * STEPS)


def python_first(spent: float) -> Events:
    """A function of Python for so many of 1000 us, and then an operator that launches a kernel of 100 us."""
    step_events = [
        event("train.py(3): log", 0, spent, "python_function"),
        event("aten::mm", spent, 20),
        call("cudaLaunchKernel", spent + 5, 5, 1),
        work("gemm", spent + 15, 985 - spent, 1),
    ]
    return steps(1000, *[step_events] * STEPS)


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COMPILE = "_compile.compile_inner (dynamo_timed)"
# Rule: what triggers it, the gain in us of a step, None where no replay tells; and what must not.
CASES: dict[str, tuple[Events, float | None, Events]] = {
    "dataloader_bound": (
        steps(1000, *[[event(LOADER, 0, 300, "user_annotation"), event("aten::add", 300, 700)]] * STEPS),
        300,
        steps(1000, *[[event(LOADER, 0, 40, "user_annotation"), event("aten::add", 40, 960)]] * STEPS),
    ),
    # The call takes 3 us, then 487 of operators: three steps end at 1480, and the device at 1534 works for longest.
    "hidden_sync": (waiting(513, 506), None, waiting(23, 510)),
    "pageable_copies": (staged("Pageable"), 297, staged("Pinned")),
    "copies_blocking": (
        device_bound(("gemm", 600), ("Memcpy HtoD (Pinned -> Device)", 300)),
        300,
        device_bound(("gemm", 600), ("Memcpy HtoD (Pinned -> Device)", 20)),
    ),
    # A chain of 100, 100 and 200 us takes 200.
    "elementwise_chains": (
        device_bound(("gemm", 400), (FUSED, 100), (FUSED, 100), (FUSED, 200)),
        200,
        device_bound((FUSED, 100), ("gemm", 200), (FUSED, 100), ("gemm", 200), (FUSED, 100), ("gemm", 200)),
    ),
    "tensor_cores_unused": (
        [event("aten::mm", 0, 3, "cpu_op", **FIRST), *device_bound(("sgemm", 600), **FIRST)],
        300,
        [event("aten::mm", 0, 3, "cpu_op", **FIRST), *device_bound(("h1688gemm", 600), **FIRST)],
    ),
    "layout_changes": (
        device_bound(("gemm", 600), ("void cudnn::nchwToNhwcKernel<float>", 300)),
        300,
        device_bound(("gemm", 900)),
    ),
    "npu_conversions": (
        device_bound(("MatMulV2", 600), ("trans_TransData_0", 200), ("aclnnCast_CastAiCore_Cast", 100)),
        300,
        device_bound(("MatMulV2", 900)),
    ),
    "communication_bound": (device_bound(("gemm", 600), (ALLREDUCE, 300)), 300, BESIDE),
    "attention_not_fused": (
        on_host(("aten::bmm", 200), ("aten::_softmax", 300), ("aten::bmm", 200), ("aten::mm", 300)),
        300,
        on_host(("aten::bmm", 200), ("aten::mm", 300), ("aten::_softmax", 300), ("aten::mm", 200)),
    ),
    "allocator_calls": (
        sometimes("cudaMalloc", "cuda_runtime", 0, 1, 2),
        300,
        sometimes("cudaMalloc", "cuda_runtime", 0),
    ),
    "recompilation": (sometimes(COMPILE, "cpu_op", 1, 2), 300, sometimes(COMPILE, "cpu_op", 0)),
    # 40 calls a step, 24 us apart: on the host 10 us each go. Kernels of 12 us are longer than their calls.
    "many_small_kernels": (launched(40, 24, 4), 400, launched(40, 24, 12)),
    # The device waits for 500 us of Python and 5 of the operator, from the end of its work to the next launch.
    "host_bound": (python_first(500), 500, python_first(30)),
    "outside_operators": (on_host(("aten::add", 400)), None, on_host(("aten::add", 700))),
    "memory_fragmented": (held(MEMORY // 2), None, held(MEMORY * 8 // 10)),
    "memory_nearly_full": (held(0, MEMORY * 95 // 100), None, held(MEMORY * 85 // 100)),
    "low_occupancy": (
        device_bound(("gemm", 600), **{"est. achieved occupancy %": 10}),
        None,
        device_bound(("gemm", 600), **{"est. achieved occupancy %": 40}),
    ),
    "small_batch": (
        device_bound(("gemm", 600), **{"blocks per SM": 0.5}),
        None,
        device_bound(("gemm", 600), **{"blocks per SM": 2.0}),
    ),
}


def told(write: Write, events: Events, name: str, **head: Any) -> dict[str, Any]:
    """The findings of a trace with a V100, by their rules."""
    device = {"id": 0, "name": "V100", "computeMajor": 7, "computeMinor": 0, "totalGlobalMem": MEMORY}
    result = answer("findings", write(events, name, deviceProperties=[device], **head))
    assert result["obstacle"] is None
    return {finding["id"]: finding for finding in result["findings"]}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_triggers_where_expected_and_gains_equal_the_replay(rule: str, write: Write) -> None:
    triggering, gain_us, silent = CASES[rule]
    found = told(write, triggering, "triggering.json")
    gain = found[rule]["gain_ns_per_step"]
    if gain_us is None:
        assert rule == "hidden_sync" or gain is None
    else:
        assert gain == pytest.approx(gain_us * 1000, abs=2)
    assert rule not in told(write, silent, "silent.json")


def test_every_rule_has_a_trace_that_triggers_it_and_one_that_must_not() -> None:
    elsewhere = {"not_nccl", "data_parallel", "step_jitter", "host_busy"}  # here below, and in test_findings.py
    elsewhere |= {"out_of_memory", "memory_grows", "activations_at_peak"}  # test_snapshot.py
    elsewhere |= {"memory_rounding", "memory_between_steps", "gradients_at_peak"}  # test_snapshot_rules.py
    elsewhere |= {"npu_ai_cpu", "npu_few_cores", "npu_launch_blocking"}  # test_npu_rules.py
    assert set(CASES) | elsewhere == set(all_rules())


def served(events: Events) -> Events:
    """The same steps as an inference server marks them, within those of the profiler."""
    marks = [row for row in events if row["name"].startswith("ProfilerStep")]
    return [*events, *({**one, "name": "execute_context_0(0)_generation_4(4)"} for one in marks)]


@pytest.mark.parametrize("rule", CASES)
def test_a_remedy_for_a_server_does_not_mention_training(rule: str, write: Write) -> None:
    found = told(write, served(CASES[rule][0]), "served.json")
    assert (rule in found) is not all_rules()[rule].training_only
    for name, finding in found.items():
        sentences = [locale["finding_served"].get(name, locale["finding"][name]["text"]) for locale in LOCALES]
        texts_joined = " ".join(
            [*sentences, *(locale["finding"][name]["title"] for locale in LOCALES), finding["code"]]
        )
        assert not TRAINING.search(texts_joined), texts_joined


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("execute_context_0(0)_generation_4(4)", "vllm serve MODEL --dtype bfloat16"),
        ("step[DECODE bs=4]", "sglang.launch_server --dtype bfloat16"),
        ("denoising_step_1", ""),  # of which no server is known
    ],
)
def test_a_remedy_in_code_is_of_the_engine(text: str, code: str, write: Write) -> None:
    events = [
        {**one, "name": one["name"].replace("execute_context_0(0)_generation_4(4)", text)}
        for one in served(CASES["tensor_cores_unused"][0])
    ]
    result = answer("findings", write(events, deviceProperties=[{"id": 0, "name": "V100", "computeMajor": 7}]))
    assert result["served"] is True
    assert {finding["code"] for finding in result["findings"] if finding["id"] == "tensor_cores_unused"} == {code}


def test_a_training_loop_is_not_a_server(write: Write) -> None:
    """A diffusion model that is trained is called as often as one that denoises."""
    calls = [event(f"nn.Module: UNet2DModel_{0}", 100 * n, 80, "python_function") for n in range(3)]
    back = [event("autograd::engine::evaluate_function: MmBackward0", 100 * n + 50, 40) for n in range(3)]
    assert answer("findings", write([*calls, *back], "learns.json"))["served"] is False
    assert answer("findings", write(calls, "denoises.json"))["served"] is True


def test_device_memory_is_nearly_full_by_held_allocations(write: Write) -> None:
    """95 % of it are held; of a kernel that keeps 10 % of the warps active the mean is that."""
    finding = told(write, held(0, MEMORY * 95 // 100), "held.json")["memory_nearly_full"]
    assert finding["evidence"] == {"device": 0, "peak_bytes": MEMORY * 95 // 100, "memory_bytes": MEMORY}
    assert finding["severity"] == "medium"


def test_low_occupancy_is_the_mean_by_time_of_a_device_in_use(write: Write) -> None:
    """A kernel of 100 us at 50 % and one of 500 at 10 %: 16.7 %. The second is the longest of those under 20 %."""
    key = "est. achieved occupancy %"
    kernels = [work("a", 110, 100, 1, **{key: 50}), work("b", 210, 500, 2, **{key: 10})]
    step_events = [call("cudaLaunchKernel", 100, 2, 1), call("cudaLaunchKernel", 105, 2, 2), *kernels]
    finding = told(write, steps(720, step_events, step_events), "used.json")["low_occupancy"]
    assert finding["evidence"] == {"device": 0, "occupancy": pytest.approx((100 * 0.5 + 500 * 0.1) / 600)}
    assert (finding["end_ns"] - finding["start_ns"], finding["gain_ns_per_step"]) == (500_000, None)
    assert "low_occupancy" not in told(
        write, steps(5000, step_events, step_events), "idle.json"
    )  # in use for 12 % of a step


def test_a_finding_of_several_devices_is_one_finding(write: Write) -> None:
    """The host launches 500 us of a step late on device 0, and 700 on device 1."""

    def on_second(one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "pid": 1, "args": {**one["args"], "device": 1}}

    step_events = [
        call("cudaLaunchKernel", 500, 2, 1),
        work("gemm", 510, 490, 1),
        call("cudaLaunchKernel", 700, 2, 2),
        on_second(work("gemm", 710, 290, 2)),
        event("aten::add", 0, 990),
    ]
    findings = answer("findings", write(steps(1000, *[step_events] * STEPS)))["findings"]
    (finding,) = [one for one in findings if one["id"] == "host_bound"]
    assert (finding["evidence"]["device"], finding["evidence"]["devices"]) == (1, 2)
    assert finding["evidence"]["idle_ns"] == 700_000


@pytest.mark.parametrize("backend", ["gloo", "mpi", "nccl"])
def test_collectives_of_gpus_that_go_through_the_host_are_named(backend: str, write: Write) -> None:
    events = device_bound(("gemm", 600), (ALLREDUCE, 300))
    found = told(write, events, f"{backend}.json", distributedInfo={"backend": backend, "rank": 0, "world_size": 2})
    assert ("not_nccl" in found) == (backend != "nccl")
    if backend != "nccl":
        assert found["not_nccl"]["evidence"] == {"backend": backend}
        assert found["not_nccl"]["end_ns"] - found["not_nccl"]["start_ns"] == 300_000


def test_removing_a_wait_leaves_the_device_time(write: Write) -> None:
    """Without it the host is done after 3 x 509 us; the device needs 505 us a step, and stays behind the last one."""
    finding = told(write, waiting(513, 506), "waiting.json")["hidden_sync"]
    assert finding["evidence"]["call"] == "cudaMemcpyAsync"
    assert finding["evidence"]["function"] == "aten::item"
    assert finding["evidence"]["calls_per_step"] == 1
    assert 480_000 <= finding["gain_ns_per_step"] <= 493_000


def test_all_changes_together_are_one_replay_and_not_a_sum(write: Write) -> None:
    """Loading takes 300 us of 1000, in which the device works: without both causes it is the device that remains."""
    host = [event(LOADER, 0, 300, "user_annotation"), event("aten::add", 300, 600), call("cudaLaunchKernel", 902, 2, 1)]
    events = steps(1000, *[[*host, work("gemm", 908, 500, 1), work(ALLREDUCE, 1408, 400, 1)]] * STEPS)
    result = answer("findings", write(events))
    gains = {finding["id"]: finding["gain_ns_per_step"] for finding in result["findings"]}
    together = result["together"]
    assert together["findings"] == len([gain for gain in gains.values() if gain is not None])
    assert max(gain for gain in gains.values() if gain is not None) <= together["gain_ns"] < result["simulated_ns"]
    assert together["gain_ns"] == answer("whatif", write(events), change=together["change"])["step"]["gain_ns"]


def test_a_recording_that_cannot_be_replayed_has_bounds_and_no_gains(write: Write) -> None:
    """The kernel starts 500 us after its launch, for no reason in the file: half of the recording."""
    step_events = [
        event(LOADER, 0, 300, "user_annotation"),
        call("cudaLaunchKernel", 310, 2, 1),
        work("gemm", 316, 5, 1),
        call("cudaLaunchKernel", 330, 2, 2),
        work("gemm", 830, 100, 2),
    ]
    result = answer("findings", write(steps(1000, *[step_events] * STEPS)))
    assert (result["obstacle"], result["together"]) == ("unexplained", None)
    finding = next(row for row in result["findings"] if row["id"] == "dataloader_bound")
    assert (finding["gain_ns_per_step"], finding["most_ns_per_step"]) == (None, 300_000)
    assert finding["severity"] == "medium"  # of a gain it would be high


def test_a_function_is_taken_away_only_if_the_time_is_its_own(write: Write) -> None:
    """`train` calls operators for most of its time: what goes with it is not known."""

    def frames(inside: float) -> Events:
        step_events = [event("train.py(3): train", 0, 600, "python_function"), event("aten::mm", 600, 400)]
        return steps(1000, *[[*step_events, event("train.py(9): helper", 0, inside, "python_function")]] * STEPS)

    finding = told(write, frames(100), "own.json")["outside_operators"]
    assert (finding["change"], finding["gain_ns_per_step"]) == ("host[train.py(3): train]=0", 600_000)
    finding = told(write, frames(250), "calls.json")["outside_operators"]
    assert (finding["change"], finding["gain_ns_per_step"], finding["most_ns_per_step"]) == ("", None, 600_000)


def test_every_rule_is_documented_and_has_words() -> None:
    text = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    assert [name for name in {*all_rules(), *RUN_FINDINGS, *REMARKS} if f"| `{name}` |" not in text] == []
    for locale in LOCALES:
        assert locale["finding"].keys() == all_rules().keys() | RUN_FINDINGS | {*REMARKS}
        assert locale["finding_served"].keys() <= all_rules().keys()
        texts = {name: locale["finding_served"].get(name, locale["finding"][name]["text"]) for name in all_rules()}
        assert [
            name for name, text in texts.items() if TRAINING.search(text) and not all_rules()[name].training_only
        ] == []
    assert LOCALES[0]["finding_served"].keys() == LOCALES[1]["finding_served"].keys()
