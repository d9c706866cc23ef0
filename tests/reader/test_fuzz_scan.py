"""Mutated texts against the scanner in C, with the sanitizers of the compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, ROOT

NATIVE = ROOT / "visualprof" / "reader" / "native"
FLAGS = (
    "-std=c11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


@pytest.mark.long
@pytest.mark.slow
def test_mutated_texts_are_read_within_their_bounds(tmp_path: Path) -> None:
    """`tests/fuzz_scan.c` says what must hold. The same by hand for longer: `fuzz 100000 SEED FILES`."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("needs gcc or clang")
    program = tmp_path / "fuzz"
    sources = [NATIVE / f"{name}.c" for name in ("scan", "gaps", "values", "words", "columns")]
    built = subprocess.run(
        [compiler, *FLAGS, "-o", program, ROOT / "tests" / "fuzz_scan.c", *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr:
        pytest.skip("needs the sanitizers' libraries")
    assert built.returncode == 0, built.stderr
    seeds = [
        path
        for path in sorted(FIXTURES.rglob("*.json"))
        if path.stat().st_size < 60_000 and b'"ph"' in path.read_bytes()
    ]
    done = subprocess.run([program, "2000", "1", *seeds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = int(done.stdout.split()[2])
    assert rows > 10_000, done.stdout
