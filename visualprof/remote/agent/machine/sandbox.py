"""Isolation of child processes: their environment, and the arguments of bubblewrap.

Level 0: limits and a scrubbed environment; no boundary against a hostile model.
Level 2: bubblewrap. The child writes one folder, has no network, no capabilities and no user namespaces of its own.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.processes import MARK_VARIABLE

SandboxMode = Literal["auto", "off", "require"]
PROBE_S = 10.0
_USER = "65534"  # nobody, inside
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nv_tegra_release")
DEVICES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dri")
# Where libraries are and which GPUs there are: the rest of the agent's environment is not the child's business.
PASSED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
# Folders of weights that torch.hub, torchvision and Hugging Face load by name; without a network there are no others.
WEIGHTS = ("TORCH_HOME", "HF_HUB_CACHE")


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of one process. work: the only folder it may write. fixed: paths below it that it may only read.

    prefixes: folders of the interpreter. mark, limits: for its environment.
    """

    work: Path
    python: Path
    read_only: tuple[Path, ...] = ()
    prefixes: tuple[str, ...] = ()
    device: str = "cpu"
    mark: str = "probe"
    limits: str = ""

    def environment(self) -> dict[str, str]:
        """All that the process sees of an environment. getpass wants USER where there is no /etc/passwd."""
        passed = {name: os.environ[name] for name in (*PASSED, *WEIGHTS) if name in os.environ}
        return passed | {
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.work),
            "TMPDIR": "/tmp",
            "USER": "visualprof",
            "LANG": "C.UTF-8",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML counts
            "PIP_NO_INDEX": "1",  # some converters install packages at import
            "VISUALPROF_LIMITS": self.limits,
            MARK_VARIABLE: self.mark,
        }

    def command(self, level: int, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """The whole command of a Python with these arguments, and its environment."""
        env, command = self.environment(), [str(self.python), *arguments]
        if level < 2:
            return command, env | {"TMPDIR": str(self.work)}
        return [*self.bubblewrap(env), *command], env

    def bubblewrap(self, env: dict[str, str]) -> list[str]:
        """Return the arguments of bwrap up to the command. Every path is the same inside and outside.

        The child of an agent that runs as root is root outside. The kernel lets root write sysctls, whatever
        capabilities it has, so /proc/sys is read-only; without capabilities and user namespaces nothing can be mounted
        to get around that. docs/security.md
        """
        args = ["bwrap", "--unshare-all", "--unshare-user", *_no_user_namespaces(), "--die-with-parent", "--clearenv"]
        args += ["--uid", _USER, "--gid", _USER, "--cap-drop", "ALL"]
        args += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
        for folder in SYSTEM:
            if os.path.islink(folder):
                args += ["--symlink", os.readlink(folder), folder]
            elif os.path.isdir(folder):
                args += ["--ro-bind", folder, folder]
        for path in (*ETC, "/sys"):
            args += ["--ro-bind-try", path, path]
        args += ["--tmpfs", "/tmp"]
        if self.device != "cpu":
            for path in sorted({path for pattern in DEVICES for path in glob.glob(pattern)}):
                args += ["--dev-bind", path, path]
        weights = (env.get(name, "") for name in WEIGHTS)
        for folder in outermost_folders((*self.prefixes, *weights, *env.get("LD_LIBRARY_PATH", "").split(":"))):
            args += ["--ro-bind", folder, folder]
        work = str(self.work)
        args += ["--bind", work, work]
        for path in map(str, self.read_only):
            args += ["--ro-bind", path, path]
        for name, value in env.items():
            args += ["--setenv", name, value]
        return [*args, "--remount-ro", "/", "--chdir", work, "--"]


@cache
def _no_user_namespaces() -> list[str]:
    """Return the option that forbids user namespaces inside, if this version of bwrap has it (from 0.8.0 on)."""
    done = subprocess.run(["bwrap", "--help"], capture_output=True, timeout=PROBE_S, check=False)
    return ["--disable-userns"] if b"--disable-userns" in done.stdout + done.stderr else []


def outermost_folders(folders: Iterable[str]) -> list[str]:
    """The folders that exist and lie in none of the others, nor in the system's."""
    outer: list[str] = []
    for folder in sorted({os.path.normpath(folder) for folder in folders if os.path.isabs(folder)}):
        inside = any(folder == other or folder.startswith(f"{other}/") for other in (*SYSTEM, *outer))
        if os.path.isdir(folder) and not inside and folder != "/":
            outer.append(folder)
    return outer


def bubblewrap_problem() -> str:
    """Why bubblewrap cannot be used here, "" when it can: many systems forbid user namespaces."""
    if not shutil.which("bwrap"):
        return "bwrap is not installed"
    command = [*Sandbox(Path("/tmp"), Path("/usr/bin/true")).bubblewrap({}), "/usr/bin/true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()[:300] or "bwrap failed"


def sandbox_level(mode: SandboxMode, say: Callable[[str], object]) -> int:
    """The level that a mode gives here; `say` gets a warning.

    Raises: AgentError: "require", and it is not to be had.
    """
    problem = "" if mode == "off" else bubblewrap_problem()
    if problem and mode == "require":
        raise AgentError(f"bubblewrap cannot be used: {problem}", "install bubblewrap, or leave out --sandbox require")
    if problem:
        say(f"children run without a sandbox: {problem}")
    return 0 if problem or mode == "off" else 2
