"""Graphs of torch modules, recorded by the torch that is installed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES

torch = pytest.importorskip("torch")

from tests.capture.torch_models import Answer, Cnn, Transformer  # noqa: E402
from visualprof.capture import add_graph  # noqa: E402
from visualprof.reader.models import read_model  # noqa: E402
from visualprof.views.graph import drawn  # noqa: E402

nn = torch.nn


def recorded(model: nn.Module, inputs: Any, folder: Path, name: str | None = None) -> dict[str, Any]:
    return json.loads(add_graph(model, inputs, folder, name).read_text())


def operators(document: dict[str, Any]) -> dict[str, Any]:
    return {n["name"]: n for n in document["nodes"] if n["kind"] == "operator"}


def test_the_fixtures_equal_new_recordings(tmp_path: Path) -> None:
    torch.manual_seed(0)
    recorded_graph = recorded(Cnn(), torch.randn(2, 3, 16, 16), tmp_path, "torch_cnn")
    document = json.loads((FIXTURES / "graphs" / "torch_cnn.graph.json").read_text())
    assert {**recorded_graph, "producer": ""} == {**document, "producer": ""}


@pytest.mark.parametrize(("model", "inputs"), [(Cnn, "images"), (Transformer, "words")])
def test_parameters_equal_torchs_own_count(tmp_path: Path, model: type[Any], inputs: str) -> None:
    feeds = {"images": torch.randn(2, 3, 16, 16), "words": ({"ids": torch.zeros(2, 6, dtype=torch.long)},)}[inputs]
    model = model()
    summary = drawn(read_model(add_graph(model, feeds, tmp_path))).model
    assert summary.parameters == sum(p.numel() for p in model.parameters())
    assert summary.parameter_bytes == sum(p.nbytes for p in model.parameters())


def test_shapes_equal_those_of_the_tensors(tmp_path: Path) -> None:
    document = recorded(Cnn(), torch.randn(2, 3, 16, 16), tmp_path)
    shapes = {n: document["values"][o["outputs"][0]]["shape"] for n, o in operators(document).items()}
    assert (shapes["stem"], shapes["mean"], shapes["fc"]) == ([2, 8, 14, 14], [2, 8], [2, 10])


def test_a_shared_module_called_twice_has_two_nodes_and_one_profile_name(tmp_path: Path) -> None:
    operators_found = operators(recorded(Cnn(), torch.randn(2, 3, 16, 16), tmp_path))
    first, second = operators_found["layers.0.conv"], operators_found["layers.0#2.conv"]
    assert first["attributes"]["profile_name"] == second["attributes"]["profile_name"]
    assert first["inputs"][1:] == second["inputs"][1:]  # the same weights
    assert second["scope"] == ["layers", "0#2"]


def test_functions_between_layers_are_operators_of_the_module_that_calls_them(tmp_path: Path) -> None:
    operators_found = operators(recorded(Cnn(), torch.randn(2, 3, 16, 16), tmp_path))
    assert operators_found["layers.1.add"]["scope"] == ["layers", "1"]
    assert operators_found["mean"]["documentation"].endswith("torch.mean.html")
    assert operators_found["mean"]["attributes"] == {"arguments": "(2, 3)"}


def test_nested_inputs_and_outputs_are_named_by_their_place(tmp_path: Path) -> None:
    document = recorded(Transformer(), {"batch": {"ids": torch.zeros(2, 6, dtype=torch.long)}}, tmp_path)
    ends = {n["name"] for n in document["nodes"] if n["kind"] in ("input", "output")}
    assert ends == {"batch.ids", "output.logits", "output.hidden.0", "output.hidden.1"}
    assert Answer.__name__ == "Answer"


def test_writing_in_place_makes_a_new_value(tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            y[:, 0] = 0
            y += 1
            return y.T

    operators_found = operators(recorded(Model(), torch.ones(2, 3), tmp_path))
    assert list(operators_found) == ["mul", "setitem", "add_", "T"]
    chain = [operators_found[n] for n in operators_found]
    assert all(a["outputs"][0] in b["inputs"] for a, b in pairwise(chain))


def test_the_model_is_left_unchanged(tmp_path: Path) -> None:
    model: Any = Cnn()
    model.layers[0].norm.eval()
    flags = [m.training for m in model.modules()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state, call = torch.get_rng_state(), nn.Module.__call__
    add_graph(nn.Sequential(model, nn.Dropout()), torch.randn(2, 3, 16, 16, generator=torch.Generator()), tmp_path)
    assert [m.training for m in model.modules()] == flags
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert nn.Module.__call__ is call
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_an_error_of_the_model_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    model, call = nn.Sequential(nn.Linear(2, 2)), nn.Module.__call__
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        add_graph(model, torch.ones(1, 3), tmp_path)
    assert nn.Module.__call__ is call
    assert model.training
    assert not list(tmp_path.iterdir())


def test_modules_that_are_not_registered_are_seen(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [nn.Linear(2, 2)]

        def forward(self, x: Any) -> Any:
            return self.hidden[0](x)

    assert "Linear" in operators(recorded(Model(), torch.ones(1, 2), tmp_path))


def test_single_layers_and_unusual_names_are_recorded(tmp_path: Path) -> None:
    path = add_graph(nn.Linear(2, 3), torch.ones(1, 2), tmp_path / "new", "a/../b <x>")
    assert path == tmp_path / "new" / "a_.._b_x_.graph.json"
    assert read_model(path).name == "a/../b <x>"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_attention_is_a_layer_with_its_four_weights(tmp_path: Path) -> None:
    operators_found = operators(recorded(Transformer(), ({"ids": torch.zeros(2, 6, dtype=torch.long)},), tmp_path))
    node = operators_found["encoder.layers.0.self_attn"]
    assert (node["type"], len(node["inputs"])) == ("MultiheadAttention", 5)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_lazy_layers_have_the_parameters_of_their_first_run(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    state = torch.get_rng_state()
    document = recorded(model, torch.ones(2, 3), tmp_path)
    assert drawn(read_model(tmp_path / "Sequential.graph.json")).model.parameters == parameters(model) == 26
    assert [n["type"] for n in operators(document).values()] == ["Linear", "ReLU", "Linear"]
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("layers", "given", "kinds"),
    [
        ([nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2, bias=False)], torch.ones(2, 8), {nn.Linear}),
        ([nn.LSTM(4, 5, num_layers=2, bidirectional=True)], torch.ones(2, 3, 4), {nn.LSTM}),
        ([nn.GRUCell(4, 5)], torch.ones(2, 4), {nn.GRUCell}),
    ],
    ids=lambda case: "",
)
def test_dynamically_quantized_layers_keep_their_parameter_counts(
    tmp_path: Path, layers: list[nn.Module], given: Any, kinds: set[Any]
) -> None:
    model = nn.Sequential(*layers)
    quantized = torch.ao.quantization.quantize_dynamic(model, kinds)
    assert parameters(quantized) == 0
    document = recorded(quantized, given, tmp_path, "m")
    assert drawn(read_model(tmp_path / "m.graph.json")).model.parameters == parameters(model) > 0
    operators_found = operators(document)
    assert list(operators_found) == [str(i) for i in range(len(layers))]
    held = [v["name"] for v in document["values"] if v["dtype"] == "qint8"]
    assert held
    assert {document["values"][i]["name"] for n in operators_found.values() for i in n["inputs"]} >= set(held)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_statically_quantized_layers_have_their_parameters(tmp_path: Path) -> None:
    quantization = torch.ao.quantization
    model = nn.Sequential(quantization.QuantStub(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).eval()
    before = parameters(model)
    model.qconfig = quantization.get_default_qconfig("x86")
    quantization.prepare(model, inplace=True)(torch.ones(1, 3, 4, 4))
    quantization.convert(model, inplace=True)
    summary = drawn(read_model(add_graph(model, torch.ones(1, 3, 4, 4), tmp_path))).model
    assert summary.parameters == before == 146
    assert summary.parameter_bytes == 3 * 4 * 9 + 16 * 2 + 4 * (4 + 2)  # weights of a byte, biases of four


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled", ["scripted", "traced"])
def test_a_torchscript_module_shows_the_executed_operators(tmp_path: Path, compiled: str) -> None:
    model, images = Cnn().eval(), torch.randn(2, 3, 16, 16)
    ready = torch.jit.script(model) if compiled == "scripted" else torch.jit.trace(model, images)
    document = recorded(ready, images, tmp_path, "m")
    shown = read_model(tmp_path / "m.graph.json")
    assert drawn(shown).model.parameters == parameters(model)
    operators_found = operators(document)
    assert operators_found["layers.0.norm.native_batch_norm"]["scope"] == ["layers", "0", "norm"]
    convolution = next(n for name, n in operators_found.items() if name.startswith("layers.1.conv."))
    assert document["values"][convolution["outputs"][0]]["shape"] == [2, 8, 14, 14]
    assert [n["type"] for n in operators_found.values()].count("relu_") == 3, "what is written in place is seen too"
    reached = {v for n in shown.nodes if n.kind == "input" for v in n.outputs}
    for node in shown.nodes:
        if node.kind == "output" or (node.kind == "operator" and not node.name.endswith(".t")):
            assert reached & set(node.inputs), node.name
            reached |= set(node.outputs)
    groups = drawn(shown).groups
    assert list(groups.name[1:]) == ["layers", "0", "1", "0#2", "fc"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_submodule_is_in_its_scope(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 3, 1)
            self.inner = torch.jit.script(Cnn().eval())

        def forward(self, x: Any) -> Any:
            return self.inner(self.stem(x)) * 2

    document = recorded(Model(), torch.ones(2, 3, 16, 16), tmp_path)
    assert operators(document)["inner.layers.1.conv.convolution"]["scope"] == ["inner", "layers", "1", "conv"]
    assert ("Cnn", ["inner"]) in [(s["type"], s["scope"]) for s in document["scopes"]]


def test_operators_under_vmap_and_grad_are_connected(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            slope = torch.func.grad(lambda row: self.fc(row).square().sum())
            return torch.vmap(slope)(torch.vmap(lambda row: self.fc(row) * 2)(x)).sum()

    document = recorded(Model(), torch.ones(3, 4), tmp_path)
    reached: set[int] = set()
    for node in document["nodes"]:
        assert node["kind"] in ("input", "constant") or reached & set(node["inputs"]), node["name"]
        reached |= set(node["outputs"]) if node["kind"] != "constant" else set()
    shapes = {n: document["values"][o["outputs"][0]]["shape"] for n, o in operators(document).items()}
    assert (shapes["vmap_in"], shapes["mul"], shapes["vmap_out"]) == ([4], [4], [3, 4])
    assert operators(document)["fc"]["inputs"][1:] == operators(document)["fc#2"]["inputs"][1:]


@pytest.mark.slow
def test_names_equal_those_of_the_profiler(tmp_path: Path) -> None:
    model, images = Cnn(), torch.randn(2, 3, 16, 16)
    document = recorded(model, images, tmp_path)
    with torch.profiler.profile(with_stack=True, with_modules=True) as profile:
        model(images)
    profile.export_chrome_trace(str(tmp_path / "profile.json"))
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    called = {e["name"] for e in events if e.get("name", "").startswith("nn.Module: ")}
    profile_names = {
        node["attributes"].get("profile_name", "") for node in (*document["nodes"], *document["scopes"])
    } - {""}
    assert called == profile_names
