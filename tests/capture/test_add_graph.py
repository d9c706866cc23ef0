"""`add_graph` without a framework: other models, imports, and written files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, ROOT, trace_of
from visualprof.capture import UnsupportedModel, add_graph
from visualprof.reader.models import read_model
from visualprof.reader.trace import Category
from visualprof.views.graph import drawn
from visualprof.views.measure.graphs.join import join_times
from visualprof.views.measure.graphs.node_times import measured

GRAPHS = FIXTURES / "graphs"
# Parameters by the frameworks' own count of tests/capture/*_models.py.
WRITTEN = {"torch_cnn": 1_522, "torch_transformer": 5_248, "megengine_lenet": 12_610, "paddle_cnn": 465}


def document(name: str) -> dict:
    return json.loads((GRAPHS / f"{name}.graph.json").read_text())


def test_other_objects_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"cannot record a builtins\.dict .*torch\.nn\.Module"):
        add_graph({}, 1, tmp_path)
    assert not list(tmp_path.iterdir())


def test_importing_capture_imports_no_framework_and_no_numpy() -> None:
    code = (
        "import sys, visualprof.capture as c; bad = {'numpy', 'torch', 'msgspec', 'visualprof.reader', "
        "'visualprof.views'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(("name", "parameters"), WRITTEN.items())
def test_parameters_are_counted_once(name: str, parameters: int) -> None:
    summary = drawn(read_model(GRAPHS / f"{name}.graph.json")).model
    assert summary.parameters == parameters
    assert summary.parameter_bytes == 4 * parameters


@pytest.mark.parametrize("name", WRITTEN)
def test_every_operator_is_reached_from_the_inputs(name: str) -> None:
    model = read_model(GRAPHS / f"{name}.graph.json")
    reached = {v for n in model.nodes if n.kind == "input" for v in n.outputs}
    for node in model.nodes:
        if node.kind in ("operator", "output"):
            assert reached & set(node.inputs), node.name
            reached |= set(node.outputs)


@pytest.mark.parametrize("name", WRITTEN)
def test_values_have_a_type_a_shape_and_a_producer(name: str) -> None:
    model = read_model(GRAPHS / f"{name}.graph.json")
    assert all(v.dtype and v.shape is not None for v in model.values)
    outputs = [v for n in model.nodes for v in n.outputs]
    assert len(outputs) == len(set(outputs))


@pytest.mark.parametrize("name", WRITTEN)
def test_names_of_nodes_are_unique_and_start_with_their_scopes(name: str) -> None:
    nodes = document(name)["nodes"]
    names = [n["name"] for n in nodes if n["kind"] == "operator"]
    assert len(names) == len(set(names))
    assert all(n["name"].startswith(".".join(n["scope"])) for n in nodes)


def test_built_in_layers_link_to_their_documentation() -> None:
    pages = {n["type"]: n["documentation"] for name in WRITTEN for n in document(name)["nodes"]}
    assert pages["Conv2d"].endswith(("torch.nn.Conv2d.html", "megengine.module.Conv2d.html"))
    assert pages["Conv2D"].endswith("paddle/nn/Conv2D_en.html")
    assert pages["softmax"] is not None


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_calls_of_modules_in_a_profile_have_the_names_in_the_graph(name: str) -> None:
    trace = trace_of(GRAPHS / f"torch_{name}_profile.json.gz")
    called = [trace.strings[i] for i in trace.events.name[trace.events.category == Category.MODULE]]
    recorded = document(f"torch_{name}")
    names = {node["attributes"].get("profile_name") for node in (*recorded["nodes"], *recorded["scopes"])}
    assert called
    assert sum(c in names for c in called) >= 0.95 * len(called)


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_time_of_layers_in_a_profile_is_joined_to_their_nodes(name: str) -> None:
    trace = trace_of(GRAPHS / f"torch_{name}_profile.json.gz")
    model = read_model(GRAPHS / f"torch_{name}.graph.json")
    joined_times = join_times(model, trace)
    called = [trace.strings[i] for i in trace.events.name[trace.events.category == Category.MODULE]]
    around = {s["attributes"]["profile_name"] for s in document(f"torch_{name}")["scopes"]}
    assert joined_times.rule == "module"
    assert joined_times.calls[joined_times.event >= 0].sum() == sum(c not in around for c in called)
    assert measured(model, trace).matched_nodes == len({c for c in called if c not in around})


def test_the_example_in_the_documentation_is_a_model(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "graph-format.md").read_text(encoding="utf-8")
    (tmp_path / "x").write_text(text.split("```json\n")[1].split("```")[0], encoding="utf-8")
    summary = drawn(read_model(tmp_path / "x")).model
    assert (summary.parameters, summary.operators) == (9, 1)
