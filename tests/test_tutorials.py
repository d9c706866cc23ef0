"""The tutorials are true: every command of a page runs, and prints what the page shows.

A `console` block holds commands after `$` and pieces of their output. `...` stands for anything, columns may be wider,
and `[exit status N]` is the status. A command that ends in `&` runs until the end of the page.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, until

pytestmark = pytest.mark.slow
FOLDER = ROOT / "docs" / "tutorials"
PAGES = sorted(FOLDER.glob("*.md"))
MAX_WORDS = 750


def console(page: Path) -> Iterator[tuple[str, list[str], int]]:
    """Yield each command of a page with the shown pieces of its output, and its exit status."""
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            status = next((int(line.split()[2].rstrip("]")) for line in lines if line.startswith("[exit status")), 0)
            yield command, [line for line in lines if line and not line.startswith("[exit status")], status


def assert_shown(lines: list[str], output: str, command: str) -> None:
    words = " ".join(output.split())
    for line in lines:
        pattern = r"\s.*?".join(r"\s".join(map(re.escape, piece.split())) for piece in line.split(" ... "))
        assert re.search(pattern, words), f"{command} does not print {line!r}, but\n{output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VISUALPROF_CACHE_DIR": str(tmp_path / "cache"),
        "COLUMNS": "250",
    }
    background: list[subprocess.Popen[str]] = []
    try:
        for command, lines, status in console(page):
            words = shlex.split(command.replace("8040", port))
            if words[0] == "pip":
                continue
            if words[0] == "visualprof":
                words[:1] = [sys.executable, "-m", "visualprof"]
            if words[-1] == "&":
                log = tmp_path / "background.log"
                with log.open("w") as out:
                    background.append(
                        subprocess.Popen(words[:-1], cwd=tmp_path, env=environment, stdout=out, stderr=out, text=True)
                    )
                shown = [line.replace("8040", port) for line in lines]
                until(lambda shown=shown, log=log: all(line in log.read_text() for line in shown), 60)
                continue
            words, file = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, "")
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
            assert_shown(lines, done.stdout + done.stderr, command)
            if file:
                (tmp_path / file).write_text(done.stdout)
                assert done.stdout
    finally:
        for process in background:
            process.terminate()
            process.wait()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_translated_tutorial_has_the_same_commands(page: Path) -> None:
    assert [*console(ROOT / "docs" / "zh" / "tutorials" / page.name)] == [*console(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_starts_from_the_install_and_ends_with_something_to_check(page: Path) -> None:
    text = page.read_text("utf-8")
    assert next(command for command, *_ in console(page)).startswith("pip install")
    assert "\n## Check yourself\n" in text
    assert len(text.split()) <= MAX_WORDS
