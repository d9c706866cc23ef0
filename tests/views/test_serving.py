"""Serving steps against hand-worked traces: phases, rates, the steady state, gaps, and steps that nothing marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.errors import BadParameter
from visualprof.reader.trace.serving import NO_LOAD, UNKNOWN_LOAD, Load, Phase, ServingStep
from visualprof.views import view
from visualprof.views.measure.steps.serving_device_time import is_cache_work, is_sampling_work, steady_range
from visualprof.views.measure.steps.serving_steps import combine_loads, serving_steps

PLAN = ((2, 24, 0), (0, 0, 2), (2, 24, 0), (0, 0, 4), (1, 10, 4), (0, 0, 5), (1, 12, 0), (0, 0, 5))


def planned(plan: Sequence[tuple[int, int, int]] = PLAN) -> list[Event]:
    """A step every 200 us, 100 us on the host: prompts, tokens of them, and requests that decode.

    In each one kernel from 20 us on, of 90 us in prefill alone and of 60 us else.
    """
    events: list[Event] = []
    for i, (prompts, tokens, decoding) in enumerate(plan):
        at, name = 200 * i, f"execute_context_{prompts}({tokens})_generation_{decoding}({decoding})"
        long = 60 if decoding else 90
        events += [host("user_annotation", name, at, 100), launch(at + 10, i + 1), kernel(at + 20, long, i + 1)]
    return events


def served(write: Write, plan: Sequence[tuple[int, int, int]] = PLAN, *more: Event) -> Path:
    """A file of such steps, and of some more events."""
    return write([*more, *planned(plan)])


def test_steps_have_the_values_of_their_annotations(write: Write) -> None:
    steps = answer("serving", served(write))["steps"]["columns"]
    phases = ["prefill", "decode", "prefill", "decode", "mixed", "decode", "prefill", "decode"]
    assert (steps["name"], steps["phase"]) == (list("01234567"), phases)
    assert steps["prefill_tokens"] == [24, 0, 24, 0, 10, 0, 12, 0]
    assert steps["decode_requests"] == [0, 2, 0, 4, 4, 5, 0, 5]
    assert steps["decode_context"] == [0, None, 0, None, None, None, 0, None]  # which no bracket says
    assert steps["annotation"][4] == "execute_context_1(10)_generation_4(4)"


def test_a_step_ends_with_its_device_work_and_gaps_are_between_steps(write: Write) -> None:
    steps = answer("serving", served(write))["steps"]["columns"]
    assert steps["total_ns"] == [110_000, 100_000, 110_000, 100_000, 100_000, 100_000, 110_000, 100_000]
    assert steps["host_gap_ns"] == [100_000] * 7 + [None]
    # the kernel of a prefill ends at 110, that of others at 80, the next one begins at 220
    assert steps["device_gap_ns"] == [110_000, 140_000, 110_000, 140_000, 140_000, 140_000, 110_000, None]


def test_the_steady_state_has_nearly_the_most_requests_and_the_prefills_in_between(write: Write) -> None:
    result = answer("serving", served(write))
    assert result["steady"] == {
        "first": "4",
        "last": "7",
        "steps": 4,
        "most_requests": 5,
        "start_ns": 800_000,
        "end_ns": 1_500_000,
    }
    assert result["steps"]["columns"]["steady"] == [False] * 4 + [True] * 4


def test_rates_are_those_of_the_steady_state(write: Write) -> None:
    rates = answer("serving", served(write))["rates"]
    assert rates["duration_ns"] == 700_000  # from 800 to 1,500 us
    assert rates["prefill_tokens_per_s"] == pytest.approx(22 / 700e-6)
    assert rates["decode_tokens_per_s"] == pytest.approx(14 / 700e-6)
    # steps that decode end at 900, 1,100 and 1,500 us: 4 requests wait 100, 5 wait 200, 5 wait 400
    assert rates["time_per_output_token_ns"] == round(1000 * (4 * 100 + 5 * 200 + 5 * 400) / 14)


def test_phases_are_never_averaged_together(write: Write) -> None:
    columns = answer("serving", served(write), window="all")["phases"]["columns"]
    assert (columns["phase"], columns["steps"]) == (["prefill", "mixed", "decode"], [3, 1, 4])
    assert columns["total_ns"] == [110_000, 100_000, 100_000]
    assert columns["kernel_ns"] == [90_000, 60_000, 60_000]
    assert columns["requests"] == [pytest.approx(5 / 3), 5, 4]
    assert columns["tokens_per_s"] == pytest.approx([60 / 330e-6, 14 / 100e-6, 16 / 400e-6])
    assert answer("serving", served(write))["phases"]["columns"]["steps"] == [1, 1, 2]  # of the steady state


def test_the_overview_averages_the_phase_of_most_of_the_time(write: Write) -> None:
    result = answer("overview", served(write))
    assert result["steps"]["phase"] == [
        "prefill",
        "decode",
        "prefill",
        "decode",
        "mixed",
        "decode",
        "prefill",
        "decode",
    ]
    average, headline = result["average_step"], result["headline"]
    assert (average["phase"], average["total_ns"], average["kernel_ns"]) == ("decode", 100_000, 60_000)
    assert (headline["step_most_ns"], headline["steps_per_s"]) == (100_000, None)


def test_a_step_is_incomplete_only_compared_with_its_phase(write: Write) -> None:
    more = [event for k in range(4) for event in (launch(210 + k, 90 + k), kernel(400 + k, 1, 90 + k))]
    path = served(write, ((0, 0, 2), (2, 24, 0), (0, 0, 2)), *more)  # the prefill has 5 kernels, what follows has 1
    assert answer("overview", path)["dropped_steps"] == []


def test_a_step_with_less_work_than_the_previous_of_its_phase_is_incomplete(write: Write) -> None:
    more = [event for k in range(4) for event in (launch(10 + k, 90 + k), kernel(100 + k, 1, 90 + k))]
    path = served(write, ((0, 0, 2), (0, 0, 2)), *more)
    assert [step["name"] for step in answer("overview", path)["dropped_steps"]] == ["1"]
    assert answer("serving", path)["dropped"] == 1


def test_the_window_can_be_chosen(write: Write) -> None:
    path = served(write)
    assert answer("serving", path, least="0.8")["steady"]["first"] == "3"  # with 4 of 5 requests
    chosen = answer("serving", path, first="1", last="3")
    assert (chosen["steady"]["steps"], chosen["rates"]["duration_ns"]) == (3, 500_000)
    with pytest.raises(BadParameter, match="there is no step '9'"):
        answer("serving", path, first="9")
    with pytest.raises(BadParameter, match="step '1' is before step '3'"):
        answer("serving", path, first="3", last="1")


def one(phase: Phase, batch: int | None) -> ServingStep:
    return ServingStep("vllm", phase, batch=batch)


def test_idle_steps_end_a_steady_state_and_unknown_batches_are_all_of_it() -> None:
    busy = [one("decode", 8)] * 2
    assert steady_range([*busy, one("idle", 0), *busy, one("draft", 1), one("decode", 8)], 0.9) == (3, 6)
    assert steady_range([one("denoise", None)] * 5, 0.9) == (0, 4)
    assert steady_range([one("prefill", 1), one("prefill", 4), one("prefill", 4)], 0.9) == (1, 2)


def test_steps_that_check_drafted_tokens_have_no_time_per_token(write: Write) -> None:
    path = write([host("user_annotation", "execute_context_0(0)_generation_2(8)", 0, 100)])
    rates = answer("serving", path)["rates"]
    assert (rates["decode_tokens_per_s"], rates["time_per_output_token_ns"]) == (80_000, None)


def test_cache_and_sampling_are_known_by_names(write: Write) -> None:
    sampler = [host("user_annotation", "gpu_model_runner: sample", 50, 40), launch(60, 8), kernel(90, 5, 8, "softmax")]
    cache = [launch(30, 9), kernel(84, 3, 9, "void reshape_and_cache_flash_kernel<bf16>")]
    steps = answer("serving", served(write, ((0, 0, 2), (0, 0, 2)), *sampler, *cache), window="all")["steps"]["columns"]
    assert (steps["cache_ns"], steps["sampling_ns"]) == ([3_000], [5_000])  # the last step has fewer kernels


def test_without_such_names_their_time_is_unknown(write: Write) -> None:
    nothing = answer("serving", served(write))["steps"]["columns"]
    assert (nothing["cache_ns"], nothing["sampling_ns"]) == ([None] * 8, [None] * 8)


@pytest.mark.parametrize(
    ("name", "cache", "sampling"),
    [
        ("_C_cache_ops::reshape_and_cache_flash", True, False),
        ("concat_and_cache_mla_kernel", True, False),
        ("sglang::store_cache", True, False),
        ("transformers/cache_utils.py(88): update", True, False),
        ("nn.Module: Sampler_0", False, True),
        ("gpu_model_runner: sample", False, True),
        ("flashinfer::sampling::TopKTopPSamplingFromProbKernel", False, True),
        ("aten::multinomial", False, True),
        ("transformers/generation/utils.py(2894): _sample", False, False),
        ("aten::grid_sampler_2d", False, False),
        ("upsample_nearest2d", False, False),
        ("nn.Module: Downsample2D_0", False, False),
        ("vllm/v1/worker/gpu_worker.py(600): sample_tokens", False, False),
        ("aten::mm", False, False),
    ],
)
def test_names_of_cache_and_sampling(name: str, cache: bool, sampling: bool) -> None:
    assert (is_cache_work(name), is_sampling_work(name)) == (cache, sampling)


def lookups(*tokens: int, requests: int = 2) -> list[Event]:
    """Steps of a loop every 100 us: the look-up of so many tokens a request, that of their places, and a kernel."""
    events: list[Event] = []
    for i, token_count in enumerate(tokens):
        for at, table in ((0, 1000), (10, 64)):
            event = host("cpu_op", "aten::embedding", 100 * i + at, 5)
            event["args"] = {"Input Dims": [[table, 16], [requests, token_count]], "Input type": ["float", "long int"]}
            events.append(event)
        events += [
            launch(100 * i + 20, i + 1),
            kernel(100 * i + 30, 40, i + 1),
            host("cpu_op", "aten::mm", 100 * i + 19, 9),
        ]
    return events


def test_a_loop_that_generates_is_known_by_its_look_ups(write: Write) -> None:
    result = answer("serving", write(lookups(7, 1, 1, 1)))
    assert (result["source"], result["engine"]) == ("token_lookups", None)
    steps = result["steps"]["columns"]
    assert steps["phase"] == ["prefill", "decode", "decode", "decode"]
    assert (steps["prefill_tokens"], steps["decode_tokens"]) == ([14, 0, 0, 0], [0, 2, 2, 2])
    assert steps["total_ns"] == [100_000, 100_000, 100_000, 70_000]  # the last one to the end of its kernel
    assert result["rates"]["time_per_output_token_ns"] == round((100_000 + 100_000 + 70_000) / 3)


def test_steps_of_a_loop_within_a_profiler_step_are_separate(write: Write) -> None:
    path = write([step(3, -10, 900), *lookups(7, 1, 1)])
    assert answer("serving", path)["steps"]["columns"]["name"] == ["0", "1", "2"]
    assert answer("overview", path)["steps"]["name"] == ["3"]


@pytest.mark.parametrize("tokens", [(7, 7, 7), (1, 1), ()])
def test_loops_that_do_not_generate_are_not_serving(tokens: tuple[int, ...], write: Write) -> None:
    assert serving_steps(trace_of(write([host("cpu_op", "aten::mm", 0, 5), *lookups(*tokens)]))) is None


def test_calls_of_a_denoising_model_are_steps(write: Write) -> None:
    calls = [
        host("python_function", f"nn.Module: {name}_0", at, 80)
        for at, name in (
            (0, "CLIPTextModel"),
            (100, "UNet2DConditionModel"),
            (200, "UNet2DConditionModel"),
            (300, "AutoencoderKL"),
        )
    ]
    work = [event for i in (1, 2) for event in (launch(100 * i + 10, i), kernel(100 * i + 20, 50, i))]
    result = answer("serving", write([*calls, *work]))
    assert result["source"] == "denoiser_calls"
    assert result["phases"]["columns"]["phase"] == ["denoise"]
    assert result["phases"]["columns"]["steps"] == [2]
    assert result["phases"]["columns"]["sampling_ns"] == [None]


def test_a_loop_of_ones_own_has_steps_of_unknown_size(write: Write) -> None:
    """Nothing says how many tokens: neither rates nor a time per token, and all its steps count."""
    marks = [host("user_annotation", f"decode_step_{i}", 100 * i, 90) for i in range(3)]
    work = [event for i in range(3) for event in (launch(100 * i + 10, i + 1), kernel(100 * i + 20, 50, i + 1))]
    result = answer("serving", write([*marks, *work]))
    assert (result["engine"], result["source"], result["steady"]["steps"]) == (None, "annotations", 3)
    assert result["phases"]["columns"]["phase"] == ["decode"]
    rates = result["rates"]
    assert [rates["decode_tokens_per_s"], rates["time_per_output_token_ns"]] == [None, None]
    assert result["steps"]["columns"]["decode_tokens"] == [None] * 3


def test_a_pipeline_call_with_known_steps_is_not_a_step(write: Write) -> None:
    """The text encoder and the decoder of images, 0 to 100 and 300 to 380, are not denoising."""
    whole = host("user_annotation", "execute_diffusion_2_512x512", 0, 400)
    calls = [
        host("python_function", f"nn.Module: {name}_0", at, 80)
        for at, name in ((10, "T5EncoderModel"), (100, "SD3Transformer2DModel"), (200, "SD3Transformer2DModel"))
    ]
    work = [event for i in (0, 1, 2) for event in (launch(100 * i + 12, i + 1), kernel(100 * i + 20, 50, i + 1))]
    result = answer("serving", write([whole, *calls, *work]))
    assert (result["source"], result["engine"]) == ("denoiser_calls", "diffusion")
    phases = result["phases"]["columns"]
    assert (phases["phase"], phases["steps"], phases["requests"]) == (["denoise"], [2], [2])
    assert (phases["prefill_tokens"], phases["decode_tokens"]) == ([None], [None])
    alone = answer("serving", write([whole, *calls[:1], *work], "alone.json"))
    assert (alone["source"], alone["steps"]["columns"]["annotation"]) == (
        "annotations",
        ["execute_diffusion_2_512x512"],
    )
    assert alone["phases"]["columns"]["prefill_tokens"] == [None]


def test_several_steps_in_a_profiler_step_are_summed(write: Write) -> None:
    mixed = combine_loads(
        [
            ServingStep("vllm", "prefill", Load(2, 24, 30), NO_LOAD, 24, 2),
            ServingStep("vllm", "decode", NO_LOAD, Load(3, 3), 3, 3),
        ]
    )
    assert mixed == ServingStep("vllm", "mixed", Load(2, 24, 30, None, None), Load(3, 3, None, None, None), 27, 3)
    assert combine_loads([]) is None
    assert combine_loads([one("draft", 2)] * 2) == ServingStep("vllm", "draft", NO_LOAD, NO_LOAD, None, 2)
    path = served(write, ((2, 24, 0), (0, 0, 2)), step(5, -10, 900))
    assert answer("overview", path)["steps"]["phase"] == ["mixed"]
    assert answer("serving", path)["steps"]["columns"]["phase"] == ["prefill", "decode"]


def test_unknown_is_not_nothing() -> None:
    assert UNKNOWN_LOAD.requests is None
    assert NO_LOAD.requests == 0


def test_charts_show_the_batch_over_time_and_each_phase(write: Write) -> None:
    chosen = view("serving")
    params = chosen.parse({})
    assert chosen.charts is not None
    drawn = chosen.charts(chosen.compute(trace_of(served(write)), params), params, 10)
    curves: dict[str, Any] = {series["name"]: series["data"] for series in drawn["batch"]["series"]}
    assert curves["@t:serving.phase.decode"][1] == [200_000, 2]
    assert curves["@t:serving.phase.prefill"][4] == [800_000, 1]
    assert drawn["phases"]["xAxis"]["data"] == [f"@t:serving.phase.{phase}" for phase in ("prefill", "mixed", "decode")]


@pytest.mark.parametrize(
    ("file", "engine", "phase", "tokens", "kernel_us"),
    [
        ("sglang_prefill", "sglang", "prefill", 15_360, 492_769),
        ("vllm_decode/graph_execution", "vllm", "decode", 32, 10_674.5),
        ("b200_eager", "vllm", "prefill", 888, None),
    ],
)
def test_real_steps_have_the_tokens_and_the_times_of_tracelens(
    file: str, engine: str, phase: str, tokens: int, kernel_us: float | None
) -> None:
    """Source: traces/tracelens/README.md; kernels there are `computation`."""
    result = answer("serving", recording_path(f"traces/tracelens/{file}.json.gz"))
    assert (result["engine"], result["source"]) == (engine, "annotations")
    steps, phases = result["steps"]["columns"], result["phases"]["columns"]
    assert (steps["phase"], steps[f"{phase}_tokens"]) == ([phase], [tokens])
    if kernel_us is not None:
        assert phases["kernel_ns"][0] / 1000 == pytest.approx(kernel_us, rel=1e-5)


@pytest.mark.parametrize("file", ["h100_qwen05b", "h100_vit", "torch_compile_triton"])
def test_other_real_recordings_have_no_serving_steps(file: str) -> None:
    assert serving_steps(trace_of(recording_path(f"traces/tracelens/{file}.json.gz"))) is None


def test_annotations_without_duration_are_not_steps(write: Write) -> None:
    trace = trace_of(write([host("user_annotation", "step[DECODE bs=2]", 10, 0), host("cpu_op", "aten::mm", 0, 5)]))
    assert (len(trace.steps), serving_steps(trace)) == (0, None)
