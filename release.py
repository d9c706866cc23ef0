"""Build and check a release: `make release`. Nothing is uploaded.

Writes the source distribution, a wheel with the native reader per platform, and a wheel without it to `build/release`.
Then checks the metadata and contents, and installs each wheel that this machine can run with each of its Pythons.

VISUALPROF_REPOSITORY is the address of the public repository: links of the README and project URLs point there.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent
OUTPUT = ROOT / "build" / "release"
#: Wheel tag of each platform and the target of its compiler.
TARGETS = {
    "manylinux_2_17_x86_64.manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64.manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
REQUIRED = (
    "visualprof/py.typed",
    "visualprof/frontend/dist/index.html",
    "visualprof/frontend/dist/third-party-licenses.txt",
    "visualprof/samples/models/resnet10.onnx",
    "/licenses/LICENSE",
    "/licenses/NOTICE",
)
FORBIDDEN = re.compile(r"\.(c|h|map|pyc|vue|ts)$|^(tests|docs|benchmarks)/|node_modules")


def main(argv: Sequence[str] | None = None) -> int:
    """Build and check everything; return 1 and print the problems if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="TAG", help="Build only the wheel with this platform tag.")
    parser.add_argument("--skip-install", action="store_true", help="Do not install the wheels.")
    args = parser.parse_args(argv)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    source = build_source()
    wheels = [build_wheel(source, tag, target) for tag, target in TARGETS.items() if args.only in (None, tag)]
    if not args.only:
        wheels.append(build_wheel(source, "any", ""))
    problems = [problem for wheel in wheels for problem in content_problems(wheel)]
    problems += metadata_problems([source, *wheels])
    if not args.skip_install:
        problems += [p for wheel in wheels if is_for_this_machine(wheel.name) for p in install_problems(wheel)]
    for path in sorted(OUTPUT.iterdir()):
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def build_source() -> Path:
    """Build the source distribution, which contains the built web UI, and return its path."""
    _python("-m", "build", "--no-isolation", "--sdist", "--outdir", OUTPUT, ROOT)
    (path,) = OUTPUT.glob("*.tar.gz")
    return path


def build_wheel(source: Path, tag: str, target: str) -> Path:
    """Build a wheel from the source distribution and return its path.

    Args:
        source: The source distribution.
        tag: Platform tag; `any` for a wheel without the native reader.
        target: Target of the compiler.
    """
    compiler = f"{sys.executable} -m ziglang cc -target {target} -mcpu=baseline" if target else "false"
    settings = {"CC": compiler, "VISUALPROF_WHEEL_PLATFORM": tag if target else "", "VISUALPROF_NODE": "system"}
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(source, folder)
        (unpacked,) = Path(folder).iterdir()
        before = set(OUTPUT.glob("*.whl"))
        _python("-m", "build", "--no-isolation", "--wheel", "--outdir", OUTPUT, unpacked, **settings)
    (path,) = set(OUTPUT.glob("*.whl")) - before
    return path


def content_problems(wheel: Path) -> list[str]:
    """Return what a wheel lacks and what does not belong into it."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in REQUIRED if not any(n.endswith(name) for n in names)]
    has_library = any("/native/_columns." in name for name in names)
    if has_library == wheel.name.endswith("-any.whl"):
        missing.append("the native reader" if not has_library else "no native reader")
    surplus = [name for name in names if FORBIDDEN.search(name)]
    return [f"{wheel.name}: {name} is missing" for name in missing] + [f"{wheel.name}: contains {n}" for n in surplus]


def metadata_problems(files: Iterable[Path]) -> list[str]:
    """Return what a package index would reject, and wheels that need a newer Linux than their tag says."""
    problems: list[str] = []
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        problems.append(checked.stdout + checked.stderr)
    for wheel in (file for file in files if "manylinux" in file.name):
        command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        platform = wheel.stem.rpartition("-")[2].partition(".")[0]
        if f'"{platform}"' not in shown and "manylinux_2_5" not in shown:
            problems.append(f"{wheel.name}: not consistent with its tag:\n{shown}")
    return problems


def is_for_this_machine(name: str) -> bool:
    """Whether this machine can install a wheel of that name."""
    machine = sysconfig.get_platform().replace("-", "_").rpartition("linux_")[2]
    return name.endswith("-any.whl") or ("manylinux" in name and name.endswith(f"{machine}.whl"))


def install_problems(wheel: Path) -> list[str]:
    """Return the Pythons with which a wheel cannot be installed, or does not show its samples."""
    problems: list[str] = []
    for python in filter(shutil.which, (f"python{version}" for version in PYTHONS)):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "HOME": folder, "VISUALPROF_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": ""}
            program = Path(folder, "venv", "bin", "visualprof")
            for command in (
                [python, "-m", "venv", f"{folder}/venv"],
                [f"{folder}/venv/bin/python", "-m", "pip", "install", "-q", str(wheel)],
                [str(program), "--version"],
                [str(program), "demo", "--check"],
            ):
                done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
                if done.returncode:
                    problems.append(f"{wheel.name}, {python}: {' '.join(command)}\n{done.stdout}{done.stderr}")
                    break
            else:
                print(f"{wheel.name}: {python} shows the samples")
    return problems


def _python(*arguments: str | Path, **settings: str) -> None:
    """Run Python with environment variables.

    Raises:
        subprocess.CalledProcessError: Python failed; its output was printed.
    """
    subprocess.run([sys.executable, *map(str, arguments)], env={**os.environ, **settings}, check=True)


if __name__ == "__main__":
    sys.exit(main())
