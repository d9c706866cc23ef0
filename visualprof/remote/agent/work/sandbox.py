"""Where a child runs: its environment, and bubblewrap's arguments that leave it one folder and no network.

Level 0: limits and a scrubbed environment, no boundary against a hostile model. Level 2: bubblewrap.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visualprof.remote.agent.faults import AgentError
from visualprof.remote.agent.machine.processes import MARK

Mode = Literal["auto", "off", "require"]
PROBE_S = 10.0
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nv_tegra_release")
DEVICES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dri")
# Where libraries are and which GPUs there are: the rest of the agent's environment is not the child's business.
PASSED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")


@dataclass(frozen=True)
class Place:
    """Of one stage. work: the only folder that it may write. fixed: below it, not to be changed. code: the archive.

    prefixes: folders of the interpreter.
    """

    work: Path
    fixed: tuple[Path, ...]
    python: Path
    prefixes: tuple[str, ...]
    device: str
    mark: str
    limits: str


def environment(place: Place) -> dict[str, str]:
    """All that the child sees of an environment. getpass wants USER where there is no /etc/passwd."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    return passed | {
        "PATH": f"{place.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(place.work),
        "TMPDIR": "/tmp",
        "USER": "visualprof",
        "LANG": "C.UTF-8",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts
        "PIP_NO_INDEX": "1",  # some converters install packages at import
        "VISUALPROF_LIMITS": place.limits,
        MARK: place.mark,
    }


def bubblewrap(place: Place, env: dict[str, str]) -> list[str]:
    """Arguments of bwrap up to the command. Everything has the path inside that it has outside."""
    args = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
    for each in SYSTEM:
        if os.path.islink(each):
            args += ["--symlink", os.readlink(each), each]
        elif os.path.isdir(each):
            args += ["--ro-bind", each, each]
    for each in (*ETC, "/sys"):
        args += ["--ro-bind-try", each, each]
    args += ["--tmpfs", "/tmp"]
    if place.device != "cpu":
        for each in sorted({path for pattern in DEVICES for path in glob.glob(pattern)}):
            args += ["--dev-bind", each, each]
    for each in outermost((*place.prefixes, *env.get("LD_LIBRARY_PATH", "").split(":"))):
        args += ["--ro-bind", each, each]
    args += ["--bind", str(place.work), str(place.work)]
    for each in place.fixed:
        args += ["--ro-bind", str(each), str(each)]
    for name, value in env.items():
        args += ["--setenv", name, value]
    return [*args, "--chdir", str(place.work), "--"]


def outermost(folders: Iterable[str]) -> list[str]:
    """The folders that exist and lie in none of the others, nor in the system's."""
    found: list[str] = []
    for each in sorted({os.path.normpath(folder) for folder in folders if os.path.isabs(folder)}):
        inside = any(each == other or each.startswith(f"{other}/") for other in (*SYSTEM, *found))
        if os.path.isdir(each) and not inside and each != "/":
            found.append(each)
    return found


def usable() -> str:
    """Why bubblewrap cannot be used here, "" when it can: many systems forbid user namespaces."""
    if not shutil.which("bwrap"):
        return "bwrap is not installed"
    here = Path("/usr")
    place = Place(Path("/tmp"), (), here / "bin" / "true", (), "cpu", "probe", "")
    command = [*bubblewrap(place, {}), "/usr/bin/true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()[:300] or "bwrap failed"


def level(mode: Mode) -> tuple[int, str]:
    """The level that a mode gives here, and a warning ("" none).

    Raises: AgentError: "require", and it is not to be had.
    """
    if mode == "off":
        return 0, ""
    problem = usable()
    if not problem:
        return 2, ""
    if mode == "require":
        raise AgentError(f"bubblewrap cannot be used: {problem}", "install bubblewrap, or leave out --sandbox require")
    return 0, f"children run without a sandbox: {problem}"


def command(place: Place, at: int, rest: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The whole command of a child, and its environment."""
    env = environment(place)
    if at < 2:
        return [str(place.python), *rest], env | {"TMPDIR": str(place.work)}
    return [*bubblewrap(place, env), str(place.python), *rest], env
