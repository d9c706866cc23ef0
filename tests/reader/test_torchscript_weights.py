"""Weights of TorchScript archives from their pickle: counts against torch's own; hostile pickles that run nothing."""

from __future__ import annotations

import os
import pickle
import random
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from visualprof.errors import FormatError
from visualprof.reader.models import read_model
from visualprof.reader.pickles import PickleError, Record, Tensor, load
from visualprof.views.graph import drawn

SCRIPT = FIXTURES / "graphs" / "torch_cnn_script.pt"
EXPORTED = FIXTURES / "graphs" / "torch_cnn.pt2"
CODE = """class M(Module):
  __parameters__ = [{}]
{}  def forward(self, x: Tensor) -> Tensor:
    return torch.add(x, {})
"""
TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n%sStorage\nX\x01\x00\x00\x000"
    b"X\x03\x00\x00\x00cpuK\x0ctQK\x00%s\x89ccollections\nOrderedDict\n)RtR"
)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def tensor(kind: str, *sizes: int) -> bytes:
    shape = b"(" + b"".join(b"J" + struct.pack("<i", size) for size in sizes) + b"t"
    return TENSOR % (kind.encode(), shape + b"(t")


def module(**state: bytes) -> bytes:
    return b"c__torch__\nM\n)\x81}(" + b"".join(text(name) + value for name, value in state.items()) + b"ub"


def archive(path: Path, pickled: bytes, code: str = CODE.format('"w", ', "  w : Tensor\n", "self.w")) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/code/__torch__.py", code)
        file.writestr("m/data.pkl", b"\x80\x02" + pickled + b".")
    return path


def test_weights_equal_those_of_the_exported_model() -> None:
    values_by_name = {(v.name, v.dtype, v.shape, v.bytes) for v in _weights(EXPORTED)}
    assert {(v.name, v.dtype, v.shape, v.bytes) for v in _weights(SCRIPT)} == values_by_name
    parameters = drawn(read_model(SCRIPT)).model.parameters
    assert parameters
    assert parameters == drawn(read_model(EXPORTED)).model.parameters


def _weights(path: Path) -> list[Any]:
    model = read_model(path)
    return [model.values[n.outputs[0]] for n in model.nodes if n.kind == "constant"]


def test_a_tensor_has_its_type_and_shape(tmp_path: Path) -> None:
    (weight,) = _weights(archive(tmp_path / "m.pt", module(w=tensor("BFloat16", 3, 4))))
    assert (weight.name, weight.dtype, weight.shape, weight.bytes) == ("w", "bfloat16", (3, 4), 24)


def test_shared_and_unused_weights_count_once(tmp_path: Path) -> None:
    code = CODE.format('"a", "b", "c", ', "  a : Tensor\n  b : Tensor\n  c : Tensor\n", "torch.mul(self.a, self.b)")
    path = archive(tmp_path / "m.pt", module(a=tensor("Float", 5) + b"q\x07", b=b"h\x07", c=tensor("Float", 2)), code)
    assert [(v.name, v.elements) for v in _weights(path)] == [("a", 5), ("c", 2)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch about its tracer
def test_parameters_equal_torchs_for_many_models(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head, self.unused = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False), nn.Linear(3, 3)
            self.head.weight = self.table.weight
            self.register_buffer("mask", torch.ones(5))
            self.free = nn.Parameter(torch.zeros(2, 3, dtype=torch.float16))
            self.rest = nn.ParameterList([nn.Parameter(torch.zeros(7))])

        def forward(self, x: Any) -> Any:
            return self.head(self.table(x)) + self.mask.sum()

    image, words = torch.zeros(1, 3, 8, 8), torch.zeros(2, dtype=torch.long)
    convolutions = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, bias=False))
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear})
    graphs = [
        torch.jit.trace(Tied(), words),
        torch.jit.trace(convolutions.eval(), image),
        torch.jit.script(convolutions),
        torch.jit.trace(encoder.eval(), torch.zeros(1, 4, 8), check_trace=False),
        torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(192, 5).double())),
        torch.jit.freeze(torch.jit.script(convolutions.eval())),
        torch.jit.trace(quantized, torch.zeros(1, 8)),
    ]
    for number, model in enumerate(graphs):
        path = tmp_path / f"{number}.pt"
        model.save(str(path))
        told = list(torch.jit.load(str(path)).parameters())
        weights = _weights(path)
        assert sorted(v.shape for v in weights) == sorted(tuple(p.shape) for p in told), number
        assert sum(v.elements for v in weights) == sum(p.numel() for p in told)
        assert sum(v.bytes for v in weights) == sum(p.numel() * p.element_size() for p in told)


class Attack:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_that_calls_is_refused_and_does_not(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = archive(tmp_path / "m.pt", pickle.dumps(Attack(mark), 2)[2:-1])
    with pytest.raises(FormatError, match=r"m\.pt: .*asks for (posix|nt)\.system, which no model does"):
        read_model(path)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["builtins\neval", "os\nsystem", "torchx\nload", "__torch__x\nM", "runpy\nrun_path"])
def test_names_of_others_are_refused(name: str) -> None:
    with pytest.raises(PickleError, match="which no model does"):
        load(b"\x80\x02c" + name.encode() + b"\n(tR.")


def test_a_call_of_torch_is_not_made() -> None:
    assert load(b"\x80\x02ctorch\nload\n(X\x01\x00\x00\x00atR.") is None


@pytest.mark.parametrize(
    ("pickled", "what"),
    [
        (b"", "damaged|cut"),
        (b"\x80\x02N", "damaged|cut"),
        (b"\x80\x02(((((", "damaged|cut"),
        (b"\x80\x02t.", "damaged"),
        (b"\x80\x02h\x09.", "damaged"),
        (b"\x80\x02I1\n.", "the step b'I', which no model has"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "the step .*x8c"),
        (b"\x80\x02" + tensor("Float", -1) + b".", "has sizes that are not numbers"),
        (b"\x80\x02NNR.", "damaged"),
        (b"\x80\x02X\xff\xff\xff\x7f.", "cut"),
        (b"\x80\x02" + b"N0" * 1000 + b"N.", "over 2,000 steps"),
    ],
)
def test_damaged_and_endless_pickles_are_refused(pickled: bytes, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.pickles.MAX_OPCODES", 2000)
    with pytest.raises(PickleError, match=what):
        load(pickled)


def test_a_pickle_of_shared_parts_is_not_written_out(tmp_path: Path) -> None:
    """Sixty modules, each holding the next under ten names: 10^60 paths, 61 objects."""
    inner = module(w=tensor("Float", 3)) + b"q\x00"
    for _ in range(60):
        inner = inner + b"0" + module(**{f"a{i}": b"h\x00" for i in range(10)}) + b"q\x00"
    start = time.process_time()
    weights = _weights(archive(tmp_path / "m.pt", inner))
    assert [v.elements for v in weights if v.elements > 0] == [3]
    assert time.process_time() - start < 2


@pytest.mark.slow
def test_every_cut_and_a_thousand_flips_end_well(tmp_path: Path) -> None:
    with zipfile.ZipFile(SCRIPT) as file:
        data = file.read(next(n for n in file.namelist() if n.endswith("/data.pkl")))
    assert isinstance(load(data), Record)
    chance = random.Random(0)
    for end in range(len(data) - 1):
        with pytest.raises(PickleError):
            load(data[:end])
    for _ in range(1000):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] = chance.randrange(256)
        try:
            load(bytes(changed))
        except PickleError:
            continue


def test_a_tensor_is_the_same_only_as_itself() -> None:
    assert Tensor("float32", (1,)) != Tensor("float32", (1,))
