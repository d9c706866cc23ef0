"""User input becomes a job: one grammar of sizes and dimensions, one rule for ids and for eligible machines."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from tests.remote.draft_sites import Known
from tests.remote.queue_sites import member, opened, request
from visualprof.remote.protocol import Capabilities, Runtime, Spec, Sweep
from visualprof.remote.queue.check.inspect import InspectedArray, inspect_model, inspection_to_json
from visualprof.remote.queue.check.matching import missing_requirements
from visualprof.remote.queue.draft.compose import compose, draft_from_request
from visualprof.remote.queue.draft.forms import CheckedDraft, Draft, DraftInput, DraftSpec
from visualprof.remote.queue.draft.grammar import dims_text, guess_batch_dim, parse_dims, parse_sizes, sizes_text
from visualprof.remote.queue.draft.specs import assign_ids, generate_spec_id
from visualprof.remote.queue.store.records import Agent

MODEL, SCRIPT = "b" * 64, "c" * 64
BERT = {
    "kind": "model",
    "name": "bert.onnx",
    "format": "onnx",
    "inputs": [{"name": n, "dtype": "int64", "dims": ["batch", "seq"]} for n in ("ids", "mask")],
    "outputs": [],
    "dims": {"batch": 1, "seq": 64},
    "warnings": [],
}


def agent(identity: str, platform: Any, *runtimes: tuple[str, str, str], online: bool = True, name: str = "") -> Agent:
    runtimes_found = [Runtime(b, v, "python", "3.11", devices.split()) for b, v, devices in runtimes]
    can = Capabilities(platform, "", "", "", "", 1, 1, 0, "", runtimes=runtimes_found)
    return Agent(
        id=identity,
        owner=None,
        name=name or identity,
        public=True,
        local=False,
        address="",
        capabilities=can,
        registered_ns=0,
        seen_ns=time.time_ns() if online else 0,
    )


ORT = "onnxruntime"
LAB = agent("lab", "x86", (ORT, "1.9.0", "cpu"), (ORT, "1.31.1", "cpu"), ("openvino", "2026.4.1", "cpu"))
GPU = agent("gpu", "cuda", ("onnxruntime", "1.23.2", "cpu cuda:0"))
AWAY = agent("away", "arm", ("onnxruntime", "1.1.0", "cpu"), online=False)


TORCH = [DraftSpec(backends=["torch"])]


def drafted(*machines: Agent, arrays: dict[str, dict[str, Any]] | None = None, **typed: Any) -> CheckedDraft:
    job_context = Known({MODEL: BERT, SCRIPT: script(), **(arrays or {})}, list(machines))
    draft: Any = {"model": MODEL, "arrays": list(arrays or ()), "specs": [DraftSpec(backends=["onnxruntime"])]}
    return compose(Draft(**{**draft, **typed}), job_context)


def script() -> dict[str, Any]:
    path = FIXTURES / "graphs" / "torch_cnn_script.pt"
    return {**inspection_to_json(inspect_model(path, path.name)), "name": path.name}


def array(name: str, dtype: str, *shape: int) -> dict[str, Any]:
    return {**inspection_to_json(InspectedArray(dtype, list(shape))), "name": name}


def codes(result: CheckedDraft) -> dict[str, str]:
    return {error.field: error.code for error in result.errors}


def test_a_machine_without_the_runtime_is_told_how_to_get_it() -> None:
    lenet = {**BERT, "name": "lenet.mge", "format": "megengine", "backends": ["megengine"]}
    for machines, expected in (
        ([LAB], ["visualprof agent install-runtime megengine", "visualprof agent --runtime megengine=PYTHON"]),
        ([AWAY], ["run visualprof agent"]),
    ):
        context = Known({MODEL: lenet}, machines)
        (error,) = compose(Draft(model=MODEL, specs=[DraftSpec()]), context).errors
        assert "no agent that is online can run this megengine model" in error.error
        assert all(words in (error.hint or "") for words in [*expected, "--backend megengine"])


# the grammar


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1:64", [1, 2, 4, 8, 16, 32, 64]),
        ("1:48", [1, 2, 4, 8, 16, 32, 48]),
        ("3:13", [3, 6, 12, 13]),
        ("5:5", [5]),
        ("8:64:8", [8, 16, 24, 32, 40, 48, 56, 64]),
        ("1:64:8", [1, 9, 17, 25, 33, 41, 49, 57]),
        ("1,2,4", [1, 2, 4]),
        ("1, 4:16 32", [1, 4, 8, 16, 32]),
        ("7", [7]),
        ("8:32:+8", [8, 16, 24, 32]),
        ("4，1, 4、2", [4, 1, 2]),
        ("1:4 100", [1, 2, 4, 100]),
    ],
)
def test_sizes_are_ranges_steps_and_lists(text: str, values: list[int]) -> None:
    assert parse_sizes(text) == values


@pytest.mark.parametrize(
    "text", ["", "0", "0:4", "4:1", "a", "1:", "1:999999999999", "1:1000:1", "-1", "1.5", "1:2:0", "1:65:1", "9" * 30]
)
def test_invalid_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("sizes", "text"), [([1, 2, 4, 8], "1:8"), ([1, 3, 8], "1, 3, 8"), ([5], "5"), ([4, 2, 1], "4, 2, 1")]
)
def test_the_text_of_sizes_is_a_range_where_that_reads_the_same(sizes: list[int], text: str) -> None:
    assert sizes_text(sizes) == text
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("batch, 3×224 224x7", ["batch", 3, 224, 224, 7]),
        ("[batch,3]", ["batch", 3]),
        ("1", [1]),
        ("()", []),
        (" [ ] ", []),
        ("（）", []),
        ("", None),
    ],
)
def test_dimensions_have_commas_crosses_and_spaces_between_them(text: str, dims: list[int | str] | None) -> None:
    assert parse_dims(text) == dims


@pytest.mark.parametrize("dims", [["batch", 3], [], [1]])
def test_the_text_of_dimensions_reads_as_they_are(dims: list[int | str]) -> None:
    assert parse_dims(dims_text(dims)) == dims


@pytest.mark.parametrize(
    ("dims", "batch"),
    [([["seq", "batch_size"]], "batch_size"), ([["d0", 3]], "d0"), ([[3, "seq"]], ""), ([[1, 3]], ""), ([], "")],
)
def test_the_batch_is_the_dimension_named_so_or_the_first(dims: list[list[int | str]], batch: str) -> None:
    assert guess_batch_dim(dims) == batch


# inputs and sizes


def test_open_fields_default_to_the_values_of_the_model() -> None:
    request = drafted(usual_sizes="1:4").request
    assert [(i.name, i.dtype, i.dims, i.fill) for i in request.inputs] == [
        ("ids", "int64", ["batch", "seq"], "random"),
        ("mask", "int64", ["batch", "seq"], "random"),
    ]
    assert (request.sweep.dim, request.sweep.values, request.dims) == ("batch", [1, 2, 4], {"seq": 64})
    assert drafted().request.sweep.values == [1]


def test_arrays_belong_to_the_input_of_their_name() -> None:
    arrays = {"1" * 64: array("mask.npy", "int64", 4, 16), "2" * 64: array("bert.ids.npy", "int64", 4, 16)}
    result = drafted(arrays=arrays)
    assert [i.blob for i in result.request.inputs] == ["2" * 64, "1" * 64]
    assert (result.request.dims, result.sizes) == ({}, {"seq": 16})


def test_the_only_array_is_that_of_the_only_input_and_gives_its_shape() -> None:
    arrays = {"1" * 64: array("anything.npy", "float32", 4, 3, 16, 16)}
    (script_input,) = drafted(model=SCRIPT, arrays=arrays).request.inputs
    assert (script_input.dtype, script_input.dims, script_input.fill) == ("float32", ["batch", 3, 16, 16], "file")
    both = {**arrays, "2" * 64: array("other.npy", "float32", 1)}
    (script_input,) = drafted(model=SCRIPT, arrays=both).request.inputs
    assert script_input.fill == "random"


def test_without_sizes_the_batch_is_that_of_the_array() -> None:
    arrays = {"1" * 64: array("anything.npy", "float32", 3, 3, 16, 16)}
    assert drafted(model=SCRIPT, arrays=arrays).request.sweep == Sweep("batch", [3])
    assert drafted(model=SCRIPT, arrays=arrays, sizes="1:2").request.sweep == Sweep("batch", [1, 2])
    assert drafted(model=SCRIPT, arrays=arrays, usual_sizes="1:2").request.sweep == Sweep("batch", [1, 2])


def test_an_array_is_only_taken_where_the_values_are_left_open() -> None:
    arrays = {"1" * 64: array("mask.npy", "int64", 4, 16)}
    result = drafted(arrays=arrays, inputs=[DraftInput("ids"), DraftInput("mask", fill="zeros")])
    assert [i.fill for i in result.request.inputs] == ["random", "zeros"]


@pytest.mark.parametrize("dims", [None, ""])
def test_unknown_dimensions_are_requested(dims: str | None) -> None:
    result = drafted(model=SCRIPT, inputs=[DraftInput("x", "float32", dims)], specs=TORCH)
    assert codes(result) == {"inputs[0].dims": "dims"}
    assert drafted(model=SCRIPT, inputs=[DraftInput("x", "int64", "()")]).request.inputs[0].dims == []


def test_each_error_is_reported_once_at_its_field() -> None:
    result = drafted(
        inputs=[DraftInput("ids"), DraftInput("mask", dims="batch, seq")],
        sizes="1:0",
        dims={"seq": "many"},
        specs=[DraftSpec(backends=["onnxruntime"], threads=["2.5"])],
        measure={"min_s": "a", "retries": "1.5", "max_s": "9"},
    )
    assert codes(result) == {
        "sweep.values": "sweep",
        "dims.seq": "size",
        "specs[0].threads": "whole",
        "measure.min_s": "number",
        "retries": "number",
    }
    assert result.request.measure.max_s == 9


def test_a_model_without_a_batch_has_one_point_unless_sizes_are_given() -> None:
    result = drafted(inputs=[DraftInput("ids", dims="1, 2"), DraftInput("mask", dims="1, 2")], usual_sizes="1:16")
    assert result.request.sweep.values == [1]
    assert result.errors == []


def test_a_model_that_is_gone_is_an_error_and_the_rest_is_still_composed() -> None:
    result = drafted(model="f" * 64, model_name="old.onnx", inputs=[DraftInput("x", "float32", "batch, 3")])
    assert "model.blob" in codes(result)
    assert (result.request.model.name, result.request.inputs[0].dims) == ("old.onnx", ["batch", 3])


@pytest.mark.parametrize(
    "typed",
    [
        {"dims": {"seq": "9" * 5000}},
        {"inputs": [DraftInput("ids", dims="9" * 5000)]},
        {"measure": {"min_s": "9" * 5000, "min_n": "9" * 5000, "nothing": "1"}},
        {"specs": [DraftSpec(backends=["onnxruntime"], threads=["9" * 5000])]},
        {"sizes": "9" * 5000},
        {"sizes": ":" * 5000},
        {"model": "../../etc/passwd"},
        {"inputs": [DraftInput("ids", fill="file", blob="\0")] * 500},
        {"specs": [DraftSpec(backends=["b"] * 9, precisions=[str(i) for i in range(9999)], threads=["1"] * 9999)]},
        {"specs": [DraftSpec(backends=["b"])] * 5000},
        {"inputs": [DraftInput("ids")] * 5000},
    ],
)
def test_hostile_drafts_are_errors_and_answered_soon(typed: dict[str, Any]) -> None:
    began = time.process_time()
    result = drafted(LAB, **typed)
    assert result.errors
    assert time.process_time() - began < 1


# specs and machines


def specs_of(*machines: Agent, **typed: Any) -> list[tuple[str, str, str]]:
    return [(s.backend, s.agent, s.device) for s in drafted(*machines, **typed).request.specs]


def test_the_default_specs_cover_each_backend_of_each_online_machine() -> None:
    assert specs_of(LAB, GPU, AWAY, specs=None) == [
        ("onnxruntime", "lab", "cpu"),
        ("onnxruntime", "gpu", "cuda:0"),
        ("openvino", "lab", "cpu"),
    ]


def test_the_machine_is_left_open_if_only_one_exists() -> None:
    assert specs_of(LAB, AWAY, specs=None) == [("onnxruntime", "", "cpu"), ("openvino", "", "cpu")]


def test_without_a_machine_the_first_specs_are_each_backend_that_would_load_it() -> None:
    assert specs_of(AWAY, specs=None) == [("onnxruntime", "", "cpu"), ("openvino", "", "cpu")]


def test_a_draft_without_specs_is_rejected() -> None:
    assert codes(drafted(specs=[])) == {"specs": "no_spec"}


def test_a_name_of_two_machines_wants_an_id() -> None:
    twins = [replace(LAB, id=identity, name="twin") for identity in ("t1", "t2")]
    (error,) = drafted(*twins, specs=[DraftSpec(backends=["onnxruntime"], agent="twin")]).errors[:1]
    assert (error.field, error.hint) == ("specs[0].agent", "name one by its id: t1, t2")
    one_away = [twins[0], replace(twins[1], seen_ns=0)]
    assert specs_of(*one_away, specs=[DraftSpec(backends=["onnxruntime"], agent="twin")])[0][1] == "t1"


def test_choices_come_from_the_machines() -> None:
    specs = [DraftSpec(backends=[ORT], agent="lab"), DraftSpec(backends=[ORT], platform="cuda")]
    at_lab, on_cuda = drafted(LAB, GPU, AWAY, specs=specs).choices
    assert (at_lab.versions, at_lab.devices) == (["1.31.1", "1.9.0"], ["cpu"])
    assert (on_cuda.versions, on_cuda.devices) == (["1.23.2"], ["cpu", "cuda:0"])
    assert (on_cuda.machines, on_cuda.lacks) == (
        ["gpu"],
        {
            "lab": "onnxruntime of lab has no cuda",
            "away": "onnxruntime of away has no cuda",
        },
    )


def test_ids_contain_what_distinguishes_the_specs() -> None:
    spec = Spec("", "onnxruntime", agent="gpu", device="cuda:0", precision="f16", threads=4, options={"o": "basic"})
    assert generate_spec_id(spec, [GPU]) == "ort-gpu-cuda0-f16-4t-basic"
    assert generate_spec_id(Spec("", "openvino", version="2026.4.1"), []) == "ov-2026.4.1"
    assert generate_spec_id(Spec("", "torch", platform="cuda", device="cuda"), []) == "torch-cuda"


def test_ids_are_each_there_once_and_typed_ones_stay() -> None:
    specs = [Spec("", "a"), Spec("a", "b"), Spec("", "a")]
    assert [s.id for s in assign_ids(specs, [])] == ["a-2", "a", "a-3"]


def test_ids_are_names_of_folders_whatever_the_machine_is_called() -> None:
    for name in ("../树莓派 <5>", "x" * 200, "-", "a.", ""):
        made = generate_spec_id(Spec("", "a", agent="gpu"), [replace(GPU, name=name)])
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}", made)


def test_the_database_and_the_reasons_agree_on_eligible_agents(tmp_path: Path) -> None:
    can = [LAB, GPU, agent("both", "cuda", ("torch", "2", "cuda:1"), ("openvino", "1", "cpu"))]
    backends, versions = (ORT, "openvino", "torch", "none"), ("", "1.23.2", "2")
    asked = itertools.product(backends, versions, ("", "cuda"), ("cpu", "cuda", "cuda:0", "cuda:1"))
    specs = [Spec(f"s{i}", b, version=v, platform=p, device=d) for i, (b, v, p, d) in enumerate(asked)]
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        for one in can:
            machine = member(queue, one.name, known=one.capabilities)
            jobs = [queue.jobs.submit(request(f"{machine.id}-{n}", *specs[n::2]))[0] for n in range(2)]
            devices = sorted({d for r in machine.capabilities.runtimes for d in r.devices})
            ids = set[str]()
            while lease := queue.leases.lease(machine, devices, 0):
                ids.add(lease.spec.id)
            for job in jobs:  # the next machine has tasks of its own
                queue.jobs.cancel(job)
            assert ids == {s.id for s in specs if not any(missing_requirements(s, machine))}


# back again


def test_a_job_becomes_a_draft_that_reproduces_it() -> None:
    specs = [
        DraftSpec(backends=["onnxruntime"], agent="gpu", device="cuda:0", threads=["2"]),
        DraftSpec(id="mine", backends=["openvino"], options={"hint": "latency"}),
    ]
    measure = {"min_s": "0.25", "timeout_s": "86400", "profile_at": "4"}
    made = drafted(LAB, GPU, sizes="1:8", dims={"seq": "16"}, specs=specs, measure=measure, name="nightly").request
    draft = draft_from_request(made, [LAB, GPU])
    assert [spec.id for spec in draft.specs or ()] == ["", "mine"]
    assert (draft.sizes, draft.dims, draft.measure) == ("1:8", {"seq": "16"}, measure)
    again = compose(draft, Known({MODEL: BERT}, [LAB, GPU])).request
    assert replace(again, key="") == replace(made, key="")
