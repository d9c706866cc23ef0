"""The history of the allocator: a fake of torch with a GPU, and the installed torch without one."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from visualprof import capture
from visualprof.capture.memory_history import HISTORY_OPTIONS, MemoryHistory
from visualprof.capture.options import CaptureError, CaptureWarning

SNAPSHOT = {"segments": [], "device_traces": [[]]}


class FakeTorch(SimpleNamespace):
    """A torch with a GPU that notes the calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.histories: list[dict[str, Any]] = []
        self.observers: list[Callable[..., None]] = []

        def snapshot() -> dict[str, Any]:
            if error:
                raise error
            return SNAPSHOT

        memory = SimpleNamespace(
            _record_memory_history=lambda **options: self.histories.append(options), _snapshot=snapshot
        )
        super().__init__(
            cuda=SimpleNamespace(is_available=lambda: True, memory=memory),
            _C=SimpleNamespace(_cuda_attach_out_of_memory_observer=self.observers.append),
        )


def test_a_snapshot_is_written_at_the_end(tmp_path: Path) -> None:
    torch = FakeTorch()
    history = MemoryHistory(tmp_path / "run", "host_1", torch)
    assert history.start()
    path = tmp_path / "run" / "host_1.memory_snapshot.pickle"
    assert history.stop() == path
    assert next(pickletools.genops(path.read_bytes()))[1] == 4
    assert pickle.loads(path.read_bytes()) == SNAPSHOT
    assert torch.histories == [{"enabled": "all", **HISTORY_OPTIONS}, {"enabled": None}]
    assert HISTORY_OPTIONS["stacks"] == "python"
    assert history.stop() is None


def test_the_first_failure_writes_one_file(tmp_path: Path) -> None:
    torch = FakeTorch()
    history = MemoryHistory(tmp_path, "host_1", torch)
    history.start()
    (observer,) = torch.observers
    observer(0, 1 << 20, 1 << 30, 1 << 10)
    path = tmp_path / "host_1.oom.memory_snapshot.pickle"
    assert path.is_file()
    path.unlink()
    observer(0, 1 << 20, 1 << 30, 1 << 10)
    history.stop()
    observer(0, 1 << 20, 1 << 30, 1 << 10)
    assert [file.name for file in tmp_path.iterdir()] == ["host_1.memory_snapshot.pickle"]


def test_the_program_continues_if_no_file_can_be_written(tmp_path: Path) -> None:
    history = MemoryHistory(tmp_path, "host_1", FakeTorch(RuntimeError("no history")))
    history.start()
    with pytest.warns(CaptureWarning, match=r"host_1\.memory_snapshot\.pickle was not written: no history"):
        assert history.stop() is None


@pytest.mark.slow  # imports torch
def test_without_a_gpu_a_warning_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    recording = capture.profile(tmp_path, steps=1, warmup=0, memory="snapshot", monitor=False)
    with pytest.warns(CaptureWarning, match="memory snapshots need a GPU"):
        recording.__enter__()
    torch.ones(8).sum()
    recording.step()
    recording.__exit__(None, None, None)
    assert recording.files()
    assert not list(tmp_path.rglob("*.pickle"))


def test_other_values_of_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="memory='wish' is unknown"):
        capture.profile(tmp_path, memory="wish")  # pyright: ignore[reportArgumentType]
