"""Packaging: bounds of versions, lock files, sources of samples."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {"dev": "dev", "team": "team"}


def test_the_sources_of_all_samples_are_stated() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (\d+) \|", (SAMPLES / "SOURCES.md").read_text(), re.MULTILINE)
    counts = {
        folder.name: sum(path.is_file() for path in folder.rglob("*"))
        for folder in SAMPLES.iterdir()
        if folder.is_dir()
    }
    assert {name: int(count) for name, count in rows} == counts


def test_every_dependency_has_a_lowest_version() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    every = [*PROJECT["dependencies"], *(text for group in extras.values() for text in group)]
    outside = [text for text in every if not text.startswith("visualprof[")]
    bounded = {canonical(re.split(r"[\[<>=;! ]", text)[0]) for text in outside if re.search(r">=|==", text)}
    assert {canonical(re.split(r"[\[<>=;! ]", text)[0]) for text in outside} == bounded


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_pins_every_dependency_with_a_hash(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pinned = {canonical(package) for package in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) >= len(pinned)
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][LOCKS[name]]]
    names = {canonical(re.split(r"[\[<>=;! ]", text)[0]) for text in wanted} - {"visualprof"}
    assert names - pinned == set(), "run `make lock`"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_lock_file_names_no_other_index() -> None:
    for path in sorted(Path(ROOT, "requirements").glob("*.txt")):
        assert "index-url" not in path.read_text(), path
