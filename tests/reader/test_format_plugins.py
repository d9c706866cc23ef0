"""A format is one file, whatever its content: text, binary and zip are found in a folder, by name or not."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

ADD = """
import io, struct, zipfile
import numpy as np
from visualprof.errors import FormatError
from visualprof.reader.registry import Format
from visualprof.reader.trace import Category, TrackKind

def add(builder, rows):
    dur = np.array([ns for _, ns in rows], np.int64)
    track = builder.track(TrackKind.THREAD, "main")
    builder.events(
        ts=np.cumsum(dur) - dur, dur=dur, name=builder.strings(name for name, _ in rows),
        category=Category.OP, track=track, row=np.arange(len(rows)),
    )
"""
PLUGINS = {
    "folded": re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-format.md").read_text(), re.DOTALL)[0],
    "records": ADD
    + """
MAGIC = b"\\x7fREC"

def read(source, builder):
    data = source.read_all(1 << 30, "records", "?")
    if len(data) % 12 != 4:
        raise FormatError(f"{source.name}: half a record", "was it cut?")
    records = struct.iter_unpack("<8sI", data[4:])
    add(builder, [(name.rstrip(b"\\0").decode(), ns) for name, ns in records])

FORMAT = Format("records", "records", 51, lambda head: True, read, start=lambda first: first.startswith(MAGIC))
""",
    "zipped": ADD
    + """
def read(source, builder):
    with zipfile.ZipFile(io.BytesIO(source.read_all(1 << 30, "an archive", "?"))) as file:
        add(builder, [(name, int(file.read(name))) for name in file.namelist()])

FORMAT = Format(
    "zipped", "zipped", 52, lambda head: b"conv" in head, read, start=lambda first: first.startswith(b"PK\\x03\\x04")
)
""",
}
ROWS = {"conv": 300, "gemm": 120}


def _folded() -> bytes:
    return "".join(f"main;net;{name} {ns}\n" for name, ns in ROWS.items()).encode()


def _records() -> bytes:
    return b"\x7fREC" + b"".join(struct.pack("<8sI", name.encode(), ns) for name, ns in ROWS.items())


def _zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, ns in ROWS.items():
            archive.writestr(name, str(ns))
    return file.getvalue()


COMMAND = "from visualprof.cli import main; sys.exit(main())"
RUNS = (
    "from visualprof.reader.logdir.listing import scan_profiles; "
    "print(*(run.id for run in scan_profiles(sys.argv[1:]).runs))"
)


def program_with(plugins: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program that finds one more folder of formats."""
    before = "import sys, visualprof.reader.formats as formats; formats.__path__.append(sys.argv.pop(1)); "
    command = [sys.executable, "-c", before + program, str(plugins), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir()
    for name, text in PLUGINS.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A folder with what else lies in one: weights, pictures, words."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5000))
    (folder / "weights.npy").write_bytes(b"\x93NUMPY\x01\x00" + bytes(5000))
    (folder / "notes.txt").write_text("nothing to see\n" * 100)
    (folder / "model.pt").write_bytes(b"PK\x03\x04" + bytes(5000))
    return folder


CASES = {
    "a text": ("stacks.folded", _folded()),
    "a text, gzipped": ("stacks.folded.gz", gzip.compress(_folded())),
    "a binary": ("unknown", _records()),
    "a zip": ("capture.zip", _zipped()),
}


@pytest.mark.parametrize(("name", "content"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("target", ["the file", "its folder"])
def test_a_format_of_any_content_opens_from_a_folder(
    plugins: Path, logdir: Path, name: str, content: bytes, target: str
) -> None:
    (logdir / name).write_bytes(content)
    path = logdir / name if target == "the file" else logdir
    result = program_with(plugins, COMMAND, "view", "operator", str(path), "--format", "json")
    assert result.returncode == 0, result.stderr
    columns = json.loads(result.stdout)["columns"]
    assert dict(zip(columns["name"], columns["host_self_ns"], strict=True)) == ROWS


def test_a_run_is_named_without_the_suffix_of_its_format(plugins: Path, logdir: Path) -> None:
    (logdir / "stacks.folded").write_bytes(_folded())
    assert program_with(plugins, RUNS, str(logdir)).stdout == "stacks\n"


def test_an_invalid_file_with_the_suffix_of_a_format_is_mentioned(plugins: Path, logdir: Path) -> None:
    (logdir / "stacks.folded").write_text("nothing of that kind")
    result = program_with(plugins, COMMAND, "view", "operator", str(logdir))
    assert result.returncode != 0
    assert "stacks.folded: no profile format recognizes the content" in result.stderr


def test_a_strangers_hint_names_every_format(plugins: Path, logdir: Path) -> None:
    result = program_with(plugins, COMMAND, "view", "operator", str(logdir / "notes.txt"))
    assert all(word in result.stderr for word in ("OpenVINO", "folded stacks", "records", "torch.profiler"))
    assert result.stderr.count("MegEngine") == 1
