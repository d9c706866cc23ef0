"""What an install compiles, asks for and says, with and without a compiler for C."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from setuptools.dist import Distribution

import build_backend
import setup
import visualprof
from tests.conftest import ROOT
from visualprof.reader import native

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
compiles = pytest.mark.skipif(COMPILER is None, reason="there is no compiler for C")


@pytest.fixture(autouse=True)
def no_compiler_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("VISUALPROF_SKIP_FRONTEND", "1")


@compiles
def test_where_a_compiler_is_the_native_reader_is_in_use() -> None:
    if os.environ.get(native.SWITCH_VARIABLE) == "0":
        pytest.skip("it is switched off")
    assert native.describe_state().startswith("yes ("), "after a change of C, any `make` target compiles it"


@pytest.mark.slow
@compiles
def test_the_sources_become_one_library(tmp_path: Path) -> None:
    assert setup.compile_native(tmp_path / "new" / "library.so", "-O0")
    assert ctypes.CDLL(str(tmp_path / "new" / "library.so")).vp_nest
    assert os.listdir(tmp_path / "new") == ["library.so"]


def test_only_cc_counts_if_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("false", "no-such-compiler"):
        monkeypatch.setenv("CC", command)
        assert not setup.compile_native(tmp_path / "library.so")
        assert not list(tmp_path.iterdir())
        assert build_backend.get_requires_for_build_wheel() == []


@pytest.mark.parametrize(("pure", "tag"), [(True, ("py3", "none", "any")), (False, ("py3", "none", None))])
def test_a_wheel_is_for_every_python(pure: bool, tag: tuple[str, str, str | None]) -> None:
    command = setup.BdistWheel(Distribution({"name": "visualprof", "version": "1"}))
    command.ensure_finalized()
    command.root_is_pure = pure
    python, abi, platform = command.get_tag()
    assert (python, abi, platform if pure else None) == tag
    assert (platform == "any") == pure


def test_a_wheel_for_another_platform_has_its_tag_and_the_name_of_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for tag, library in (("win_amd64", "native/_columns.dll"), ("macosx_11_0_arm64", "native/_columns.so")):
        monkeypatch.setattr(setup, "PLATFORM", tag)
        command = setup.BdistWheel(Distribution({"name": "visualprof", "version": "1"}))
        command.ensure_finalized()
        command.root_is_pure = False
        assert command.get_tag() == ("py3", "none", tag)
        assert setup.BuildExt(Distribution()).get_ext_filename("native._columns") == library


@pytest.mark.parametrize("repository", ["", "https://forge.example/visualprof"])
def test_the_long_description_has_no_relative_link(tmp_path: Path, repository: str) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for _ in range(2):  # a wheel is built from a source distribution, whose links are absolute already
        build_backend.prepare_metadata(tmp_path, repository)
    text = (tmp_path / "README.md").read_text("utf-8")
    assert re.findall(r"\]\((?!https?://)", text) == []
    assert ("![Overview](https://forge.example/visualprof/raw/main/docs/images/overview.png)" in text) == bool(
        repository
    )
    assert (tmp_path / "pyproject.toml").read_text("utf-8").count("[project.urls]") == bool(repository)


@compiles
@pytest.mark.slow
@pytest.mark.long
def test_a_wheel_built_without_a_compiler_contains_no_old_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "setup.py", "-q", "egg_info", "-e", tmp_path, "build", "-b", tmp_path / "build"]
    command += ["bdist_wheel", "-b", tmp_path / "wheel"]
    for named, holds in ((COMPILER, True), ("false", False)):
        monkeypatch.setenv("CC", named or "")
        out = tmp_path / str(holds)
        subprocess.run([*map(str, command), "-d", str(out)], cwd=ROOT, check=True, capture_output=True)
        (wheel,) = out.iterdir()
        libraries = [name for name in zipfile.ZipFile(wheel).namelist() if "/native/_columns." in name]
        assert bool(libraries) == holds
        assert wheel.name.endswith("-py3-none-any.whl") != holds
        assert "-py3-none-" in wheel.name


@pytest.mark.slow
@pytest.mark.long
def test_a_build_leaves_the_sources_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    sources, out = tmp_path / "sources", tmp_path / "out"
    ignored = shutil.ignore_patterns(".*", "node_modules", "__pycache__", "build", "dist", "*.egg-info", "_columns.*")
    shutil.copytree(ROOT, sources, ignore=ignored)
    out.mkdir()
    files = sorted(sources.rglob("*"))
    for call in (
        "get_requires_for_build_wheel()",
        "prepare_metadata_for_build_wheel(out)",
        "build_wheel(out)",
        "get_requires_for_build_sdist()",
        "build_sdist(out)",
    ):
        program = f"import sys; sys.path.insert(0, '.'); out = sys.argv[1]; import build_backend; build_backend.{call}"
        subprocess.run([sys.executable, "-c", program, out], cwd=sources, check=True, capture_output=True)
    assert sorted(sources.rglob("*")) == files
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    assert {path.relative_to(sources).as_posix() for path in files if path.name != ".gitignore"} <= held
    (wheel,) = out.glob("*.whl")
    assert {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()} == {
        "visualprof",
        f"visualprof-{visualprof.__version__}.dist-info",
    }


@pytest.mark.slow
def test_zig_is_asked_for_where_nothing_compiles_and_the_index_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is a folder."""
    monkeypatch.setattr(build_backend, "ZIG", "a-compiler-from-a-folder>=1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert build_backend.get_requires_for_build_editable() == [], "its lack fails no install"
    (tmp_path / "a_compiler_from_a_folder-2-py3-none-any.whl").touch()
    assert build_backend.get_requires_for_build_editable() == ["a-compiler-from-a-folder>=1"]
    assert build_backend.get_requires_for_build_sdist() == [], "C is as it is written there"


@pytest.mark.slow
@compiles
def test_present_build_requirements_are_not_requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert build_backend.get_requires_for_build_wheel() == []
    monkeypatch.delenv("VISUALPROF_SKIP_FRONTEND")
    monkeypatch.setattr(setup, "DIST", tmp_path)
    assert build_backend.get_requires_for_build_wheel() == [build_backend.NODE], "the page is not built yet"
    (tmp_path / "index.html").touch()
    assert build_backend.get_requires_for_build_sdist() == []
    monkeypatch.setenv("VISUALPROF_REBUILD", "1")
    assert build_backend.get_requires_for_build_sdist() == [build_backend.NODE]
    monkeypatch.setenv("VISUALPROF_NODE", "system")
    assert build_backend.get_requires_for_build_sdist() == []


def why(folder: Path) -> str:
    """The reason for which the library of a folder is not loaded."""
    loaded, reason = native._load(folder)
    assert loaded is None
    return reason


def test_a_library_that_cannot_be_used_is_left_alone_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(native.SWITCH_VARIABLE, raising=False)
    library = tmp_path / ("_columns.dll" if os.name == "nt" else "_columns.so")
    assert why(tmp_path) == "not compiled"
    library.write_bytes(b"of another processor")
    assert why(tmp_path).startswith("it cannot be loaded (")
    source = tmp_path / "words.c"
    source.touch()
    os.utime(library, ns=(0, source.stat().st_mtime_ns - 1))
    assert why(tmp_path).startswith("older than its sources")
    monkeypatch.setenv(native.SWITCH_VARIABLE, "0")
    assert why(tmp_path) == "VISUALPROF_NATIVE=0"
