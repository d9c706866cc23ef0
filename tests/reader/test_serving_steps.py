"""Steps of inference servers, parsed from their annotations, and texts that are not steps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import Write, trace_of
from tests.views.test_steps import host, kernel, launch, step
from visualprof.reader.trace import Category
from visualprof.reader.trace.serving import (
    NO_LOAD,
    UNKNOWN_LOAD,
    Load,
    ServingStep,
    looks_like_step,
    outermost_mask,
    parse_serving_step,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # vLLM from 0.26 with detailed_trace_annotation
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)",
            ServingStep("vllm", "mixed", Load(2, 6144, 7144, 20971520, 23019520), Load(3, 3, 6144, 3, 6144), 6147, 5),
        ),
        (  # of a context of none nothing is unknown
            "execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq64sk131072sqsq64sqsk131072)",
            ServingStep("vllm", "decode", NO_LOAD, Load(64, 64, 131072, 64, 131072), 64, 64),
        ),
        ("execute_context_2(6144)_generation_3(3)", ServingStep("vllm", "mixed", Load(2, 6144), Load(3, 3), 6147, 5)),
        (
            "execute_context_1(888_788544)_generation_0(0)",
            ServingStep("vllm", "prefill", Load(1, 888), NO_LOAD, 888, 1),
        ),
        ("execute_32_context_0_generation_32", ServingStep("vllm", "decode", NO_LOAD, Load(32, 32), 32, 32)),
        # whose of the 40 tokens are of the context it does not say
        ("execute_40_context_1_generation_8", ServingStep("vllm", "mixed", Load(1), Load(8), 40, 9)),
        ("execute_new_1_cached_3", ServingStep("vllm", "mixed", Load(1), Load(3), None, 4)),
        ("step[EXTEND bs=15 toks=15360]", ServingStep("sglang", "prefill", Load(15, 15360), NO_LOAD, 15360, 15)),
        (  # the examples of SGLang's own tests: requests of 8 and 4 new tokens, each of 10 then
            "step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]",
            ServingStep("sglang", "prefill", Load(2, 12, 20, 80, 120), NO_LOAD, 12, 2),
        ),
        (
            "step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]",
            ServingStep("sglang", "decode", NO_LOAD, Load(2, 2, 30, 2, 30), 2, 2),
        ),
        ("step[DECODE bs=64]", ServingStep("sglang", "decode", NO_LOAD, Load(64, 64), 64, 64)),
        (
            "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
            ServingStep("sglang", "mixed", Load(1, 5, 8, 25, 40), Load(1, 1, 12, 1, 12), 6, 2),
        ),
        ("step[MIXED bs=2]", ServingStep("sglang", "mixed", UNKNOWN_LOAD, UNKNOWN_LOAD, None, 2)),
        ("step[TARGET_VERIFY bs=4]", ServingStep("sglang", "decode", NO_LOAD, Load(4), None, 4)),
        ("step[DRAFT_EXTEND_V2 bs=4]", ServingStep("sglang", "draft", UNKNOWN_LOAD, UNKNOWN_LOAD, None, 4)),
        (  # SGLang's context of drafted tokens that are checked is without them
            "step[TARGET_VERIFY bs=2 g_sq=8 g_sqsq=32 g_sqsk=20 g_sk=5]",
            ServingStep("sglang", "decode", NO_LOAD, Load(2, 8, None, 32), 8, 2),
        ),
        (
            "step[TARGET_VERIFY bs=2 g_sq=8 g_sqsq=32 g_sqsk=400 g_sk=100]",
            ServingStep("sglang", "decode", NO_LOAD, Load(2, 8, 100, 32, 400), 8, 2),
        ),
        (  # as draft tokens come, which are several a request
            "step[DECODE bs=2 g_sq=6 g_sqsq=18 g_sqsk=90 g_sk=30]",
            ServingStep("sglang", "decode", NO_LOAD, Load(2, 6, 30, 18, 90), 6, 2),
        ),
        (
            "step[MIXED bs=1 c=1 g=0 c_sq=3 c_sk=3 c_sqsq=9 c_sqsk=9 g_sq=0 g_sk=0 g_sqsq=0 g_sqsk=0]",
            ServingStep("sglang", "prefill", Load(1, 3, 3, 9, 9), NO_LOAD, 3, 1),
        ),
        ("step[SPLIT_PREFILL bs=1]", ServingStep("sglang", "prefill", Load(1), NO_LOAD, None, 1)),
        ("step[PREBUILT bs=3]", ServingStep("sglang", "unknown", UNKNOWN_LOAD, UNKNOWN_LOAD, None, 3)),
        ("step[DLLM_EXTEND bs=3]", ServingStep("sglang", "unknown", UNKNOWN_LOAD, UNKNOWN_LOAD, None, 3)),
        ("step[EXTEND bs=0 toks=0]", ServingStep("sglang", "idle", NO_LOAD, NO_LOAD, 0, 0)),  # a rank without requests
        (  # checks of four drafted tokens a request
            "execute_context_0(0)_generation_4(16)",
            ServingStep("vllm", "decode", NO_LOAD, Load(4, 16), 16, 4),
        ),
        ("step[IDLE bs=0]", ServingStep("sglang", "idle", NO_LOAD, NO_LOAD, None, 0)),
        (
            "[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
            ServingStep("tensorrt-llm", "decode", NO_LOAD, Load(32), None, 32),
        ),
        (
            "[Executor] _forward_step: 2 ctx reqs, 3 gen reqs",
            ServingStep("tensorrt-llm", "mixed", Load(2), Load(3), None, 5),
        ),
        (
            "prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3]",
            ServingStep("atom", "prefill", Load(6, 17408), NO_LOAD, 17408, 6),
        ),
        ("decode[bs=117/128 tok=117 d=117]", ServingStep("atom", "decode", NO_LOAD, Load(117, 117), 117, 117)),
        ("execute_diffusion_1_1024x1024", ServingStep("diffusion", "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD, batch=1)),
        ("denoising_step_3", ServingStep("diffusion", "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD)),
        ("denoise_step3", ServingStep("diffusion", "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD)),
        ("Denoising_Step_12", ServingStep("diffusion", "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD)),
        (
            "decode_step_003",
            ServingStep(None, "decode", UNKNOWN_LOAD, UNKNOWN_LOAD),
        ),  # loops that people write themselves
        ("Decode/step_12", ServingStep(None, "decode", UNKNOWN_LOAD, UNKNOWN_LOAD)),
        ("decode_iter::4", ServingStep(None, "decode", UNKNOWN_LOAD, UNKNOWN_LOAD)),
        ("prefill_step_0", ServingStep(None, "prefill", UNKNOWN_LOAD, UNKNOWN_LOAD)),
        ("denoising step #7", ServingStep("diffusion", "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD)),
    ],
)
def test_every_annotation_form_gives_exactly_its_values(text: str, expected: ServingStep) -> None:
    assert parse_serving_step(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "execute_context_x(12)_generation_0(0)",  # no number
        "step[EXTEND bs=-1 toks=3]",
        "step[EXTEND bs=4 toks=3]",  # fewer tokens than requests
        "step[EXTEND bs=2 toks=12 c_sk=4]",  # they attend to less than themselves
        "step[DECODE bs=2 g_sqsq=9 g_sqsk=4]",
        "execute_4_context_1(sq4sk4sqsq17sqsk17)_generation_0(sq0sk0sqsq0sqsk0)",  # 4 queries have at most 16 pairs
        "execute_4_context_1(sq4sk8sqsq16sqsk33)_generation_0(sq0sk0sqsq0sqsk0)",
        "execute_context_99999999999999999999999999(1)_generation_0(0)",
        "execute_5_context_0(sq0sk0sqsq0sqsk0)_generation_5(sq5sk5sqsq5sqsk5)_more",
        "step[EXTEND bs=2 toks=12" + " x=1" * 100 + " y=" + "9" * 5000 + "]",
        "step[decode bs=4]",
        "step[EXTEND bs=1.5 toks=3]",
        "step[EXTEND toks=3 bs=1]",
        "step[EXTEND bs=4 toks=]",
        "dp0_execute_context_1(5)_generation_0(0)",
        "execute_context_1(5)_generation_0(0) dp=1",
        "execute_context_0(0)_generation_4(3)",  # fewer tokens than requests
        "denoising_step_",
        "denoising_step_x",
        "denoised_step_1",
        "denoising_steps",
        "denoising_step_list",
        "[Executor] _forward_step 3: -1 ctx reqs, 4 gen reqs",
        "[Executor] _forward_step_inter_pp",
        "decode_step_",
        "decoder_step_3",
        "decode_layer_3",
        "decode_3",
        "decoded_step_3",
        "prefill_3",
        "execute_model",
        "steps[EXTEND]",
        "step[EXTEND",
        "prefill",
        "decode[]",
        "",
    ],
)
def test_texts_that_no_server_writes_are_not_steps(text: str) -> None:
    assert parse_serving_step(text) is None


def test_a_text_that_only_starts_like_a_step_is_not_a_step() -> None:
    assert looks_like_step("execute_context_x(12)_generation_0(0)")
    assert looks_like_step("step[EXTEND bs=-1 toks=3]")
    assert looks_like_step("step[decode bs=4]")
    assert not looks_like_step("execute_model")
    assert not looks_like_step("decoder")
    assert not looks_like_step("step[0]")


def test_of_steps_inside_others_the_outer_ones_count() -> None:
    ts, dur = np.array([0, 10, 100, 0, 0]), np.array([50, 20, 10, 50, 5])
    assert outermost_mask(ts, dur, np.array([1, 1, 1, 1, 2])).tolist() == [True, False, True, False, True]


PREFILL, DECODE = "execute_context_2(24)_generation_0(0)", "execute_context_0(0)_generation_2(2)"


def served(*names: str) -> list[dict[str, object]]:
    """Steps of 100 us on the host, one kernel of 60 us in each, launched 10 us after its begin and run 10 us later."""
    events: list[dict[str, object]] = []
    for i, name in enumerate(names):
        at = 200 * i
        events += [host("user_annotation", name, at, 100), launch(at + 10, i + 1), kernel(at + 20, 60, i + 1)]
    return events


def test_annotations_become_the_steps_in_order_of_time(write: Write) -> None:
    trace = trace_of(write(served(PREFILL, DECODE, DECODE)))
    assert [trace.strings[i] for i in trace.steps.name] == ["0", "1", "2"]
    assert trace.steps.dur.tolist() == [100_000] * 3
    assert (trace.events.category == Category.STEP).sum() == 3
    assert trace.events.step[trace.events.category == Category.KERNEL].tolist() == [0, 1, 2]


def test_the_profilers_own_steps_stay_the_steps(write: Write) -> None:
    trace = trace_of(write([step(7, 0, 400), *served(PREFILL, DECODE)]))
    assert [trace.strings[i] for i in trace.steps.name] == ["7"]
    assert (trace.events.category == Category.ANNOTATION).sum() == 2


def test_a_step_in_two_wordings_is_one_step(write: Write) -> None:
    inner = host("user_annotation", "step[EXTEND bs=2 toks=24]", 20, 50)
    trace = trace_of(write([*served(PREFILL), inner]))
    assert len(trace.steps) == 1
    assert trace.steps.dur.tolist() == [100_000]


def test_annotations_of_devices_and_operators_are_not_steps(write: Write) -> None:
    marks = [host("gpu_user_annotation", DECODE, 0, 10), host("cpu_op", DECODE, 0, 10)]
    assert len(trace_of(write(marks)).steps) == 0


def test_a_malformed_annotation_is_reported_and_not_a_step(write: Write) -> None:
    trace = trace_of(write(served(DECODE, "step[EXTEND bs=2 toks=99999999999999999999]", "execute_context_1(")))
    assert len(trace.steps) == 1
    assert trace.meta.warnings == (
        (
            "2 annotations look like the steps of an inference server but do not say what these worked on; the first: "
            "'step[EXTEND bs=2 toks=99999999999999999999]'"
        ),
    )
