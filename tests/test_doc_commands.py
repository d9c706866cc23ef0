"""The commands on the pages of the documentation are valid, and run where a test can run them.

Tutorials have a test of their own. Every other command is run with the files below, or matches a row of `NOT_RUN`,
which says why. The options of every `visualprof` command are checked in both cases.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import models
from tests.conftest import FIXTURES, ROOT, SAMPLES
from visualprof.cli import commands

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("views/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PROGRAMS = r"visualprof|python3? -m|pip|curl|kill|make|torchrun|VISUALPROF_\w+=\S+ python"
PLACES = {"/data/runs": "runs", "/backup": "backup", "visualprof/samples": str(SAMPLES)}
# Pattern of a command -> why no test runs it. The first match counts.
NOT_RUN = {
    r"^(\S+/)?pip |^python3 -m venv": "installs packages; tests/test_install.py builds and installs the package",
    r"^(make|for) |^python -m (benchmarks|build|pytest)": "builds, tests or measures the repository for minutes",
    r"^(sudo|systemctl|docker|install|useradd|tar|cp|pg_\w+|aws|umask|export)\b": "changes a system or another service",
    r"^curl|^kill|^python3 agent.pyz|--server|^visualprof agent": "needs a running server or process",
    r"^visualprof (submit|machines|share|jobs|record|model)\b": "needs a running server; tests/remote has tests",
    r"^visualprof doctor --gpu": "needs a GPU; tests/gpu_kit has tests",
    r"^visualprof view (scalars|samples|distributions|curves|trials|embeddings)": "needs logs; tests/views has tests",
    r"^visualprof (search|advise)\b": "measures for minutes; tests/remote has tests",
    r"--engine|s3://|--oidc|--user-header|--store|--fleet|migrate": "needs a cluster, a bucket or another service",
    r"^visualprof (runs|demo|--logdir|\S+/samples|mcp)": "runs until it is stopped; tests/e2e has tests",
    r"^torchrun|package\.train|train\.py": "needs your training script; tests/capture has tests",
    r"--run\b|--agent|megengine|ort_profile|mge\.profile": "needs the framework or device of the recording",
    r"--with-agent|grant|revoke|set-password|create-user": "needs accounts; tests/accounts has tests",
    r"--data inputs.npz|onnx_shapes": "needs your own model; tests/remote has tests",
    r"side=device": "belongs to a guide; tests/test_guides.py follows it",
    r"--project vision": "needs a project; tests/remote has tests",
}


def documented(page: Path) -> Iterator[str]:
    """Yield the commands of a page: the lines of shell blocks, and indented commands."""
    text = page.read_text("utf-8")
    fence = r"^```(\w*)\n(.*?)^```$"
    for language, block in re.findall(fence, text, re.MULTILINE | re.DOTALL):
        if language in ("bash", "sh"):
            yield from filter(None, map(without_comment, re.sub(r"\\\n\s*", "", block).splitlines()))
    rest = re.sub(fence, "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^ {4,}.*\n)+", rest, re.MULTILINE):
        prompt = r"\$ " if "$ " in block else ""  # the other lines are output
        yield from map(without_comment, re.findall(rf"^ +{prompt}((?:{PROGRAMS}) .*)", block, re.MULTILINE))


def without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*", "", line).strip()


ALL = [(page.name, command) for page in PAGES for command in dict.fromkeys(documented(page))]
OWN = [(page, command) for page, command in ALL if re.match(r"visualprof\b", command)]


def reason(command: str) -> str | None:
    """Return why the command is not run."""
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), None)


RUN = [(page, command) for page, command in ALL if reason(command) is None]


@pytest.mark.parametrize(("page", "command"), OWN)
def test_the_options_of_a_documented_command_exist(page: str, command: str) -> None:
    words = shlex.split(re.sub(r"[>|&].*$|; .*$", "", re.sub(r"'[^']*'", "'x=1'", command)))[1:]
    name = words.pop(0) if words and words[0] in commands() else "serve"
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    parser.add_argument("--version", action="store_true")
    importlib.import_module(f"visualprof.cli.{name.replace('-', '_')}").add_arguments(parser)
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    known = set(re.findall(r"--[a-z][a-z-]+", " ".join(help_texts(parser))))
    assert options - known == set(), page


def help_texts(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the help of a parser and of its subcommands."""
    yield parser.format_help()
    for action in parser._actions:  # argparse has no public list
        if isinstance(action.choices, dict):
            for child in action.choices.values():
                if isinstance(child, argparse.ArgumentParser):
                    yield from help_texts(child)


def test_every_reason_is_needed() -> None:
    used = {next(p for p in NOT_RUN if re.search(p, command)) for _, command in ALL if reason(command)}
    assert [pattern for pattern in NOT_RUN if pattern not in used] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages name."""
    root = tmp_path_factory.mktemp("pages")
    recording = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    (root / "runs" / "today").mkdir(parents=True)
    (root / "backup").mkdir()
    shutil.copy(recording, root / "runs" / "today")
    for name in ("before", "after"):
        (root / name).mkdir()
        shutil.copy(recording, root / name)
    for name in ("before", "after", "trace"):
        shutil.copy(recording, root / f"{name}.json")
    for name in ("snapshot", "before", "after"):
        shutil.copy(FIXTURES / "memory_snapshots" / "train_oom.pickle", root / f"{name}.pickle")
    models.save(models.chain(["conv", "relu"]), root / "model.onnx")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), RUN)
def test_a_documented_command_runs(page: str, command: str, folder: Path) -> None:
    for place, here in PLACES.items():
        command = command.replace(place, here)
    command = re.sub(r"^visualprof", f"{shlex.quote(sys.executable)} -m visualprof", command)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VISUALPROF_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in ((0, 3) if "--fail-on" in command else (0,)), f"{page}: {command}\n{done.stderr}"
