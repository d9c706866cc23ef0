"""All errors of a job are reported before it is queued, each with its field."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.conftest import FIXTURES
from tests.recordings import recording_path
from visualprof.remote.backends import all_backends
from visualprof.remote.protocol import Capabilities, Intervals, Precision, Runtime
from visualprof.remote.protocol.machine import Platform
from visualprof.remote.queue.check.inspect import InspectedArray, inspect_model, inspection_to_json
from visualprof.remote.queue.check.job import InvalidRequest, check_request, parse_request, point_count
from visualprof.remote.queue.check.request_json import MAX_BYTES
from visualprof.remote.queue.store.records import Agent

BERT, RESNET, STATIC, LENET, MGE_BERT, SCRIPT, UNKNOWN = (f"{i:064x}" for i in range(1, 8))
MODELS = {
    BERT: "models/onnx/tinybert_scoped_dyn.onnx",
    RESNET: "models/onnx/resnet10_dynbatch.onnx",
    STATIC: "models/onnx/resnet10_static.onnx",
    LENET: "models/megengine/lenet.mge",
    MGE_BERT: "models/megengine/transformer_tiny.mge",
}


@dataclass
class Known:
    """Files and machines as the server would know them."""

    arrays: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: list[Agent] = field(default_factory=list)
    intervals: Intervals = field(default_factory=Intervals)

    urgent = True

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        if sha256 in self.arrays:
            return self.arrays[sha256]
        if sha256 == SCRIPT:
            return read(FIXTURES / "graphs" / "torch_cnn_script.pt")
        return read(recording_path(MODELS[sha256])) if sha256 in MODELS else None

    def agents(self) -> list[Agent]:
        return self.machines

    def array(self, name: str, dtype: str, *shape: int) -> str:
        blob = f"{len(self.arrays) + 100:064x}"
        self.arrays[blob] = {**inspection_to_json(InspectedArray(dtype, list(shape))), "name": name}
        return blob

    def agent(
        self, identity: str = "aaaaaaaaaa", seen_s: float = 0.0, platform: Platform = "x86", **runtime: Any
    ) -> None:
        runtimes = [Runtime("onnxruntime", "1.31.1", "/usr/bin/python3", "3.11.7", **runtime)]
        can = Capabilities(
            platform,
            "x86_64",
            "Linux",
            "host",
            "cpu",
            2,
            1 << 34,
            2,
            "0.1",
            runtimes=runtimes,  # type: ignore[arg-type]
        )
        seen = time.time_ns() - int(seen_s * 1e9)
        self.machines.append(
            Agent(
                id=identity,
                owner=None,
                name="box",
                public=True,
                local=False,
                address="10.0.0.7",
                capabilities=can,
                registered_ns=0,
                seen_ns=seen,
            )
        )


@cache
def read(path: Path) -> dict[str, Any]:
    return {**inspection_to_json(inspect_model(path, path.name)), "name": path.name}


@pytest.fixture
def known() -> Known:
    job_context = Known()
    job_context.agent()
    return job_context


def job(model: str = RESNET, inputs: Any = None, **changes: Any) -> dict[str, Any]:
    if inputs is None:
        inputs = [{"name": "input", "dtype": "float32", "dims": ["batch", 3, 96, 96]}]
    spec = {"id": "ort", "backend": "onnxruntime"}
    return {"key": "k", "model": {"blob": model, "name": "m.onnx"}, "specs": [spec], "inputs": inputs, **changes}


def text(name: str, dims: list[Any] | None = None, dtype: str = "int64", **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "dims": dims or ["batch", "seq"], **more}


def bert(*inputs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return job(BERT, list(inputs or (text("input_ids"), text("attention_mask"))), **{"dims": {"seq": 16}, **changes})


def refused(known: Known, given: dict[str, Any]) -> dict[str, str]:
    """Errors by field."""
    errors, _ = check_request(parse_request(json.dumps(given).encode()), known)
    return {e.field: e.error for e in errors}


def warned(known: Known, given: dict[str, Any]) -> dict[str, str]:
    errors, warnings = check_request(parse_request(json.dumps(given).encode()), known)
    assert errors == []
    return {e.field: e.error for e in warnings}


def invalid(body: bytes | dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(body if isinstance(body, bytes) else json.dumps(body).encode())
    return {e.field: e.error for e in caught.value.errors}


# what is right


def test_advice_about_a_candidate_that_no_machine_has_is_rejected(known: Known) -> None:
    advise = {"objective": "latency", "only": ["onnx-fp16", "nosuch"]}
    given = job(advise=advise)
    errors, _ = check_request(parse_request(json.dumps(given).encode()), known)
    (error,) = errors
    assert (error.field, error.error) == ("advise.only", "there is no candidate 'nosuch'")
    hint = error.hint or ""
    assert hint.startswith("the candidates are ")
    assert ", onnx-fp16, " in hint


@pytest.mark.parametrize(
    "given",
    [
        job(),
        job(sweep={"dim": "batch", "values": [1, 2, 4, 64]}),
        job(inputs=[{"name": "input", "dtype": "float32", "dims": [8, 3, 96, 96]}], sweep={"dim": "", "values": [1]}),
        job(STATIC, [{"name": "input", "dtype": "float32", "dims": [1, 3, 96, 96]}]),
        bert(sweep={"dim": "seq", "values": [16, 32]}, dims={"batch": 2}),
        bert(text("attention_mask"), text("input_ids")),
    ],
)
def test_a_job_that_fits_its_model_has_no_errors(known: Known, given: dict[str, Any]) -> None:
    assert refused(known, given) == {}


def test_points_are_specs_times_sizes() -> None:
    specs = [{"id": f"s{i}", "backend": "onnxruntime"} for i in range(3)]
    request_body = job(specs=specs, sweep={"dim": "batch", "values": [1, 2]})
    assert point_count(parse_request(json.dumps(request_body).encode())) == 6


# the form


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"key": NaN}', b"[" * 100_000, b'{"a": "\\ud800"}'])
def test_input_that_is_not_json_is_rejected(body: bytes) -> None:
    assert "this is no JSON" in invalid(body)[""]


def test_a_job_of_megabytes_is_refused_unread() -> None:
    assert "over 1 MiB" in invalid(b" " * (MAX_BYTES + 1))[""]


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"x"'])
def test_input_that_is_not_an_object_is_rejected(body: bytes) -> None:
    assert "must be an object" in invalid(body)[""]


def test_unknown_fields_are_named_with_their_path_and_the_most_similar_field() -> None:
    request_body = job(measur={}, inputs=[{"name": "input", "dtype": "f", "dims": [], "shape": []}])
    request_body["specs"][0]["agents"] = "x"
    with pytest.raises(InvalidRequest) as caught:
        parse_request(json.dumps(request_body).encode())
    values_by_name = {e.field: e.hint for e in caught.value.errors}
    assert values_by_name["measur"] == "did you mean 'measure'?"
    assert values_by_name["specs[0].agents"] == "did you mean 'agent'?"
    assert "inputs[0].shape" in values_by_name


def test_missing_fields_and_wrong_types_are_all_named_at_once() -> None:
    given = {
        "model": {"blob": 7},
        "specs": [{"id": "a", "backend": "x", "threads": True, "precision": "f64", "options": {"a": 1}}],
        "inputs": [{"name": "x", "dtype": "f", "dims": [1.5, None]}],
        "sweep": {"values": "1"},
        "timeout_s": "long",
        "dims": {"seq": 2.5},
    }
    errors = invalid(given)
    assert errors == {
        "key": "is missing",
        "model.blob": "must be a text, not 7",
        "model.name": "is missing",
        "specs[0].threads": "must be a whole number, not true",
        "specs[0].precision": "must be '' or 'auto' or 'f32' or 'f16' or 'bf16' or 'int8', not \"f64\"",
        "specs[0].options.a": "must be a text, not 1",
        "inputs[0].dims[0]": "must be a whole number or a text, not 1.5",
        "inputs[0].dims[1]": "must be a whole number or a text, not null",
        "sweep.values": 'must be a list, not "1"',
        "timeout_s": 'must be a number, not "long"',
        "dims.seq": "must be a whole number, not 2.5",
    }


def test_thousands_of_errors_are_summarized() -> None:
    began = time.process_time()
    assert len(invalid({f"x{i}": 1 for i in range(50_000)})) <= 210
    assert time.process_time() - began < 2


# limits


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"key": ""}, "key"),
        ({"key": "a b"}, "key"),
        ({"name": "x\n"}, "name"),
        ({"model": {"blob": "../../etc/passwd", "name": "m.onnx"}}, "model.blob"),
        ({"model": {"blob": RESNET, "name": "../m.onnx"}}, "model.name"),
        ({"model": {"blob": RESNET, "name": ".."}}, "model.name"),
        ({"specs": []}, "specs"),
        ({"specs": [{"id": f"s{i}", "backend": "onnxruntime"} for i in range(65)]}, "specs"),
        ({"specs": [{"id": "../x", "backend": "onnxruntime"}]}, "specs[0].id"),
        ({"specs": [{"id": "a", "backend": "onnxruntime"}, {"id": "A", "backend": "onnxruntime"}]}, "specs[1].id"),
        ({"specs": [{"id": "a", "backend": "onnxruntime", "threads": -1}]}, "specs[0].threads"),
        ({"specs": [{"id": "a", "backend": "onnxruntime", "device": "/dev/sda"}]}, "specs[0].device"),
        ({"specs": [{"id": "a", "backend": "onnxruntime", "platform": "mips"}]}, "specs[0].platform"),
        ({"specs": [{"id": "a", "backend": "onnxruntime", "version": "1; rm"}]}, "specs[0].version"),
        ({"sweep": {"values": []}}, "sweep.values"),
        ({"sweep": {"values": list(range(1, 66))}}, "sweep.values"),
        ({"sweep": {"values": [0]}}, "sweep.values[0]"),
        ({"sweep": {"values": [1, 65_537]}}, "sweep.values[1]"),
        ({"sweep": {"values": [2, 4, 2]}}, "sweep.values[2]"),
        ({"measure": {"min_s": -1}}, "measure.min_s"),
        ({"measure": {"max_s": 1e300}}, "measure.max_s"),
        ({"measure": {"min_s": 10, "max_s": 5}}, "measure.max_s"),
        ({"measure": {"min_n": 0}}, "measure.min_n"),
        ({"measure": {"warmup_s": 1e9}}, "measure.warmup_s"),
        ({"profile": {"runs": 10**9}}, "profile.runs"),
        ({"profile": {"at": 5}}, "profile.at"),
        ({"monitor_interval_s": 0}, "monitor_interval_s"),
        ({"timeout_s": 0.5}, "timeout_s"),
        ({"timeout_s": 86_401}, "timeout_s"),
        ({"retries": 11}, "retries"),
        ({"dims": {"seq": 0}}, "dims.seq"),
        ({"inputs": [{"name": "", "dtype": "float32", "dims": [1]}]}, "inputs[0].name"),
        ({"inputs": [{"name": "x", "dtype": "float31", "dims": [1]}]}, "inputs[0].dtype"),
        ({"inputs": [{"name": "x", "dtype": "float32", "dims": [-1]}]}, "inputs[0].dims[0]"),
        ({"inputs": [{"name": "x", "dtype": "float32", "dims": [1] * 33}]}, "inputs[0].dims"),
        ({"inputs": [{"name": "x", "dtype": "float32", "dims": [1], "fill": "file"}]}, "inputs[0].blob"),
        ({"inputs": [{"name": "x", "dtype": "float32", "dims": [1], "blob": RESNET}]}, "inputs[0].blob"),
    ],
)
def test_values_out_of_range_are_refused_by_field(known: Known, changes: dict[str, Any], field: str) -> None:
    assert list(refused(known, {**job(), **changes})) == [field]


def test_a_value_out_of_range_does_not_hide_other_errors(known: Known) -> None:
    request_body = job(inputs=[], timeout_s=0, specs=[{"id": "s", "backend": "onnxrt"}])
    assert list(refused(known, request_body)) == ["timeout_s", "specs[0].backend", "inputs"]


# the model


def test_a_model_that_is_not_here_is_refused(known: Known) -> None:
    assert refused(known, job(UNKNOWN)) == {"model.blob": "this file is not here"}


def test_an_array_is_not_a_model(known: Known) -> None:
    assert refused(known, job(known.array("x.npy", "float32", 1))) == {"model.blob": "x.npy is an array, not a model"}


def test_a_wrong_name_names_the_nearest_input(known: Known) -> None:
    request_body = job(inputs=[{"name": "inputs", "dtype": "float32", "dims": ["batch", 3, 96, 96]}])
    errors, _ = check_request(parse_request(json.dumps(request_body).encode()), known)
    assert [(e.field, e.error, e.hint) for e in errors] == [
        ("inputs", "the model's input 'input' is missing", "did you mean 'inputs'?"),
        ("inputs[0].name", "the model has no input 'inputs'", "did you mean 'input'?"),
    ]


def test_a_missing_input_is_named(known: Known) -> None:
    assert refused(known, bert(text("input_ids"))) == {"inputs": "the model's input 'attention_mask' is missing"}


def test_wrong_types_ranks_and_sizes_are_reported_together(known: Known) -> None:
    request_body = bert(text("input_ids", dtype="float32"), text("attention_mask", ["batch"]))
    assert refused(known, request_body) == {
        "inputs[0].dtype": "the model wants int64, the job has float32",
        "inputs[1].dims": "the model wants 2 dimensions, the job has 1",
    }


@pytest.mark.parametrize("size", [4, "batch"])
def test_a_fixed_size_of_the_model_must_be_kept(known: Known, size: int | str) -> None:
    request_body = job(inputs=[{"name": "input", "dtype": "float32", "dims": ["batch", size, 96, 96]}])
    assert refused(known, request_body) == {"inputs[0].dims[1]": f"the model wants 3, the job has {size}"}


def test_a_named_dimension_of_the_model_has_one_size(known: Known) -> None:
    errors = refused(known, bert(text("input_ids"), text("attention_mask", ["batch", 8])))
    assert errors == {"inputs[1].dims[1]": "is 8 here and 'seq' in inputs[0].dims[1]"}


def test_a_dimension_without_a_size_is_refused(known: Known) -> None:
    assert refused(known, bert(dims={})) == {
        "inputs[0].dims[1]": "nothing gives 'seq' a size",
        "inputs[1].dims[1]": "nothing gives 'seq' a size",
    }


def test_a_sweep_over_a_dimension_that_is_not_there_is_refused(known: Known) -> None:
    fixed = [{"name": "input", "dtype": "float32", "dims": [1, 3, 96, 96]}]
    errors = refused(known, job(STATIC, fixed, sweep={"dim": "batch", "values": [1, 2]}))
    assert errors == {"sweep.dim": "no input has the dimension 'batch'"}


def test_a_size_for_a_dimension_that_is_not_there_is_a_warning(known: Known) -> None:
    assert warned(known, bert(dims={"seq": 4, "width": 3})) == {"dims.width": "no input has this dimension"}


def test_megengine_models_take_any_batch_but_no_other_size(known: Known) -> None:
    spec = [{"id": "m", "backend": "megengine"}]
    right = job(LENET, [{"name": "data", "dtype": "float32", "dims": ["batch", 1, 32, 32]}], specs=spec)
    wrong = job(LENET, [{"name": "data", "dtype": "float64", "dims": ["batch", 3, 32, 32]}], specs=spec)
    assert refused(known, right) == {}
    assert refused(known, wrong) == {
        "inputs[0].dtype": "the model wants float32, the job has float64",
        "inputs[0].dims[1]": "the model wants 1, the job has 3",
    }


def test_inputs_of_torchscript_are_the_users_word(known: Known) -> None:
    spec = [{"id": "t", "backend": "torch"}]
    assert (
        refused(known, job(SCRIPT, [{"name": "x", "dtype": "float32", "dims": ["batch", 3, 16, 16]}], specs=spec)) == {}
    )


# arrays


def test_arrays_that_fit_give_named_dimensions_their_size(known: Known) -> None:
    blob = known.array("ids.npy", "int32", 4, 48)
    assert refused(known, bert(text("input_ids", fill="file", blob=blob), text("attention_mask"), dims={})) == {}


def test_an_array_that_is_not_here_is_refused(known: Known) -> None:
    request_body = bert(text("input_ids", fill="file", blob=UNKNOWN), text("attention_mask"))
    assert refused(known, request_body) == {"inputs[0].blob": "this file is not here"}


def test_a_model_is_not_an_array(known: Known) -> None:
    request_body = bert(text("input_ids", fill="file", blob=RESNET), text("attention_mask"))
    assert refused(known, request_body) == {"inputs[0].blob": "resnet10_dynbatch.onnx is a model, not an array"}


@pytest.mark.parametrize(
    ("dtype", "shape", "told"),
    [
        ("float64", (1, 3, 96, 96), "x.npy holds float64, the model wants float32"),
        ("float32", (3, 96, 96), "x.npy has 3 dimensions, the input has 4"),
        ("float32", (8, 4, 96, 96), "dimension 1 is 4 in x.npy, the model wants 3"),
    ],
)
def test_an_array_that_does_not_fit_its_input_is_refused(
    known: Known, dtype: str, shape: tuple[int, ...], told: str
) -> None:
    blob = known.array("x.npy", dtype, *shape)
    given = [{"name": "input", "dtype": "float32", "dims": ["batch", 3, 96, 96], "fill": "file", "blob": blob}]
    assert refused(known, job(inputs=given)) == {"inputs[0].blob": told}


def test_a_swept_dimension_may_have_any_size_in_an_array(known: Known) -> None:
    blob = known.array("x.npy", "float32", 5, 3, 96, 96)
    given = [{"name": "input", "dtype": "float32", "dims": ["batch", 3, 96, 96], "fill": "file", "blob": blob}]
    assert refused(known, job(inputs=given, sweep={"dim": "batch", "values": [1, 64]})) == {}


def test_arrays_that_contradict_each_other_are_both_named(known: Known) -> None:
    ids, mask = known.array("ids.npy", "int64", 1, 16), known.array("mask.npy", "int64", 1, 32)
    request_body = bert(
        text("input_ids", fill="file", blob=ids), text("attention_mask", fill="file", blob=mask), dims={}
    )
    assert refused(known, request_body) == {"inputs[1].blob": "'seq' is 32 in mask.npy and 16 in ids.npy"}


def test_a_size_that_an_array_overrules_is_a_warning(known: Known) -> None:
    ids = known.array("ids.npy", "int64", 1, 48)
    request_body = bert(text("input_ids", fill="file", blob=ids), text("attention_mask"), dims={"seq": 64})
    assert warned(known, request_body) == {"dims.seq": "an uploaded array has 48 here, so 64 is not used"}


# memory


def test_points_of_over_16_gib_are_refused_and_of_over_1_gib_warned_of(known: Known) -> None:
    large = warned(known, job(sweep={"dim": "batch", "values": [1, 16_384]}))
    assert large == {"sweep.values[1]": "the inputs of this point take 1.7 GiB"}
    huge = bert(sweep={"dim": "batch", "values": [1, 65_536]}, dims={"seq": 100_000})
    assert refused(known, huge) == {"sweep.values[1]": "the inputs of this point take 97.7 GiB"}


def test_a_deadline_that_the_points_cannot_keep_is_a_warning(known: Known) -> None:
    request_body = job(sweep={"dim": "batch", "values": list(range(1, 33))}, timeout_s=60)
    assert warned(known, request_body) == {"timeout_s": "is 60 s, but the points of a spec take 96 s and more"}


# backends and machines


def spec(**changes: Any) -> dict[str, Any]:
    return job(specs=[{"id": "s", "backend": "onnxruntime", **changes}])


def test_an_unknown_backend_is_refused(known: Known) -> None:
    assert refused(known, spec(backend="onnxrt")) == {"specs[0].backend": "there is no backend 'onnxrt'"}


def test_a_backend_that_does_not_load_the_model_is_refused(known: Known) -> None:
    assert refused(known, spec(backend="megengine")) == {"specs[0].backend": "megengine does not load onnx models"}


def test_a_precision_that_the_backend_cannot_set_is_rejected(known: Known) -> None:
    assert refused(known, spec(precision="f32")) == {}
    assert refused(known, spec(precision="bf16")) == {
        "specs[0].precision": "onnxruntime does not support precision bf16"
    }


@pytest.mark.parametrize("backend", all_backends(), ids=lambda b: b.name)
def test_every_backend_declares_what_is_checked_before_queueing(backend: Any) -> None:
    assert backend.formats
    assert set(backend.precisions) <= set(get_args(Precision))
    assert all(isinstance(values, tuple) for values in backend.options.values())


def test_options_must_belong_to_the_backend(known: Known) -> None:
    assert refused(known, spec(options={"optimization": "most", "speed": "9"})) == {
        "specs[0].options.optimization": "is 'most'",
        "specs[0].options.speed": "onnxruntime has no such option",
    }


def test_an_agent_that_is_not_registered_is_refused(known: Known) -> None:
    assert refused(known, spec(agent="zzz")) == {"specs[0].agent": "there is no agent 'zzz'"}


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"version": "1.2"}, "version", "box has no onnxruntime 1.2"),
        ({"device": "cuda:0"}, "device", "onnxruntime of box has no cuda:0"),
        ({"platform": "arm"}, "platform", "box is x86, not arm"),
        ({"backend": "openvino"}, "backend", "box has no openvino"),
    ],
)
def test_an_agent_without_the_requirements_is_rejected(
    known: Known, changes: dict[str, str], field: str, told: str
) -> None:
    assert refused(known, spec(agent="aaaaaaaaaa", **changes)) == {f"specs[0].{field}": told}


def test_an_agent_that_is_away_is_a_warning() -> None:
    job_context = Known()
    job_context.agent(seen_s=31)
    assert warned(job_context, spec(agent="aaaaaaaaaa")) == {
        "specs[0].agent": "box is not there now: this waits until it is back"
    }
    assert warned(job_context, spec()) == {
        "specs[0].backend": "no agent with onnxruntime for cpu is there now: this waits"
    }


def test_a_requirement_that_no_agent_meets_is_a_warning_with_the_available_ones(known: Known) -> None:
    given = json.dumps(spec(platform="cuda", device="cuda:0")).encode()
    errors, (warning,) = check_request(parse_request(given), known)
    assert errors == []
    assert warning.field == "specs[0].platform"
    assert warning.error == "no registered agent has onnxruntime for cuda:0 on cuda"
    assert warning.hint == "this waits until one is registered; there is onnxruntime 1.31.1 on x86"


def test_hostile_texts_come_back_as_they_are_and_short(known: Known) -> None:
    name = "<img src=x onerror=alert(1)>" + "'; drop table jobs; --" * 200
    errors = refused(known, spec(backend=name))
    assert "<img src=x onerror=alert(1)>" in errors["specs[0].backend"]
    assert len(errors["specs[0].backend"]) < 200
