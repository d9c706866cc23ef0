"""The limit of CPU time for tests without a mark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TESTS = """
import time
import pytest

def work():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass

@pytest.fixture(scope="module")
def shared(): work()
@pytest.fixture
def own(): work()

def test_cheap(): pass
def test_waiting(): time.sleep(0.3)
def test_with_a_shared_fixture(shared): pass
@pytest.mark.slow
def test_marked(): work()
def test_costly(): work()
def test_with_a_costly_fixture(own): pass
"""


@pytest.mark.slow
def test_costly_tests_fail_unless_they_are_marked(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.cpu_limit", "--cpu-limit", "0.15", "-W", "ignore"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    failed = [line.split()[1].rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == ["test_costly", "test_with_a_costly_fixture"], done.stdout + done.stderr
    assert "it took 0.2 s of CPU time: make it cheaper, or mark it as slow" in done.stdout
