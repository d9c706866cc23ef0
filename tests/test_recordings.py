"""Files of recordings: own ones are always there, missing ones of others are skipped and counted."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests import recordings
from tests.conftest import ROOT
from tests.fetch_recordings import content, inline_trace
from tests.pack_recordings import rounded_weights
from tests.recordings import ARCHIVES, FOREIGN_PATHS, SKIPPED, foreign_files, recording_path

SKIPPING = f"import pytest\n@pytest.mark.parametrize('i', range(3))\ndef test_a(i): pytest.skip({SKIPPED!r})\n"


def run(folder: Path, limit: int) -> subprocess.CompletedProcess[str]:
    (folder / "test_skips.py").write_text(SKIPPING)
    (folder / "pytest.ini").write_text(f"[pytest]\n{recordings.LIMIT} = {limit}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.recordings", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_skipped_tests_are_counted_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, 3)
    assert done.returncode == 0, done.stdout
    assert "3 tests need the recordings of others: make fixtures" in done.stdout.splitlines()


@pytest.mark.slow
def test_more_skipped_tests_than_allowed_are_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, 2)
    assert done.returncode == 1
    assert "allows 2 such tests" in done.stdout


def test_a_path_that_is_in_no_archive_and_not_listed_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="in no archive"):
        recording_path("traces/paddle/unknown.json")


def test_a_missing_file_of_others_skips_and_so_does_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "RECORDINGS", tmp_path)
    for path in ("traces/kineto/hta/triton_example.json.gz", "traces/kineto/hta", "traces/kineto"):
        with pytest.raises(pytest.skip.Exception, match="make fixtures"):
            recording_path(path)


@pytest.mark.slow
def test_archives_contain_no_file_of_others() -> None:
    packed = {name for archive in ARCHIVES.glob("*.tar.xz") for name, _ in recordings.unpacked(archive)}
    assert packed
    assert packed.isdisjoint(FOREIGN_PATHS)


def test_every_file_of_others_has_an_address_a_digest_and_a_license() -> None:
    files = foreign_files()
    assert len({file.path for file in files}) == len(files)
    for file in files:
        assert file.address.startswith(("https://", "pypi:"))
        assert (len(file.sha256), int(file.bytes) > 0, bool(file.license)) == (64, True, True)
        assert file.change in ("", "gzip", "inline")


def test_a_download_with_another_digest_is_rejected() -> None:
    file = foreign_files()[0]
    with pytest.raises(ValueError, match="has changed"):
        content(file, b"another file")
    packed = content(replace(file, change="gzip", sha256=hashlib.sha256(b"a").hexdigest()), b"a")
    assert gzip.decompress(packed) == b"a"


def test_a_trace_is_taken_out_of_the_source_of_a_test() -> None:
    quotes = '"""'
    source = f"def test_a(self):\n    x = {quotes}[1]{quotes}\n    y = {quotes}\n[{{}}]{quotes}\n"
    assert json.loads(inline_trace(source, "test_a:1")) == {"schemaVersion": 1, "traceEvents": [{}]}


def test_weights_lose_bits_and_other_bytes_do_not() -> None:
    weights = np.linspace(0.1, 1, 1024, dtype="<f4")
    head, tail = b"\x01\x02" * 700, b"text"
    rounded = rounded_weights(head + weights.tobytes() + tail)
    assert rounded[:1400] == head
    assert rounded[-4:] == tail
    values = np.frombuffer(rounded, "<f4", 1024, 1400)
    np.testing.assert_allclose(values[300:-300], weights[300:-300], rtol=0.13)
    assert len(set(values[300:-300].tolist())) < 40
