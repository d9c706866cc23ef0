"""Isolation of child processes: their environment, and the arguments of bubblewrap.

- Level 0: resource limits and a clean environment; no protection against a hostile model.
- Level 2: bubblewrap. The child can write to one folder and has no network, capabilities or user namespaces.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.processes import MARK_VARIABLE

SandboxMode = Literal["auto", "off", "require"]
PROBE_TIMEOUT_S = 10.0
_NOBODY_UID = "65534"  # "nobody" inside the sandbox
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
ETC_PATHS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nv_tegra_release")
DEVICE_PATTERNS = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dri")
# Library paths and visible GPUs. The rest of the agent's environment is hidden from the child.
PASSED_VARIABLES = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
# Names inside for the folder of the job, so that a job learns nothing about the machine from its paths. The second one
# is used if an interpreter is in a folder of the first name.
JOB_FOLDERS = ("/job", "/visualprof-job")
# Folders of weights that torch.hub, torchvision and Hugging Face load by name. The child cannot download others.
WEIGHT_FOLDER_VARIABLES = ("TORCH_HOME", "HF_HUB_CACHE")


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of one process.

    Attributes:
        work: The only folder that the process may write; `/job/work` inside.
        python: Its interpreter.
        files: A folder that it may only read; `/job/files` inside.
        replaced: Files that it may only read, each with the path below `work` at which it appears.
        prefixes: Folders of the interpreter.
        device: The device that it uses.
        mark: Value that identifies the processes of the task, in their environment.
        limits: Resource limits, in its environment.
    """

    work: Path
    python: Path
    files: Path | None = None
    replaced: tuple[tuple[Path, Path], ...] = ()
    prefixes: tuple[str, ...] = ()
    device: str = "cpu"
    mark: str = "probe"
    limits: str = ""

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the process. getpass needs USER if there is no /etc/passwd."""
        passed = {
            name: os.environ[name] for name in (*PASSED_VARIABLES, *WEIGHT_FOLDER_VARIABLES) if name in os.environ
        }
        return passed | {
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.work),
            "TMPDIR": "/tmp",
            "USER": "visualprof",
            "LANG": "C.UTF-8",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of NVML
            "PIP_NO_INDEX": "1",  # some converters install packages at import
            "VISUALPROF_LIMITS": self.limits,
            MARK_VARIABLE: self.mark,
        }

    def command(self, level: int, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Return the command line of a Python with these arguments, and its environment."""
        env = self.environment()
        if level < 2:
            return [str(self.python), *arguments], env | {"TMPDIR": str(self.work)}
        return [*self.bubblewrap(env), str(self.python), *self.inside(list(arguments))], env

    @cached_property
    def job_folder(self) -> str:
        """Return the name of the job's folder inside."""
        folders = (str(self.python), *self._readable())
        is_in_use = any(f"{folder}/".startswith(f"{JOB_FOLDERS[0]}/") for folder in folders)
        return JOB_FOLDERS[is_in_use]

    def _readable(self) -> list[str]:
        """Return the folders of interpreters, libraries and weights, which have the same names inside."""
        weights = (os.environ.get(name, "") for name in WEIGHT_FOLDER_VARIABLES)
        libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        return outermost_folders((*self.prefixes, *weights, *libraries))

    def inside(self, value: Any) -> Any:
        """Return a text, or JSON with texts, with the names of the sandbox for its folders."""
        if isinstance(value, str):
            for folder, name in ((self.work, "work"), (self.files, "files")):
                if folder and (value == str(folder) or value.startswith(f"{folder}/")):
                    return f"{self.job_folder}/{name}{value[len(str(folder)) :]}"
            return value
        if isinstance(value, list):
            return [self.inside(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {self.inside(key): self.inside(item) for key, item in cast("dict[str, Any]", value).items()}
        return value

    def bubblewrap(self, env: dict[str, str]) -> list[str]:
        """Return the arguments of bwrap up to the command.

        The work folder and the files have other names inside. Interpreters and weights have the same names, because
        their files contain their own paths.

        The child of an agent that runs as root is root outside. The kernel lets root write sysctls, whatever
        capabilities it has, so /proc/sys is read-only; without capabilities and user namespaces nothing can be mounted
        to get around that. docs/security.md
        """
        args = [
            "bwrap",
            "--unshare-all",
            "--unshare-user",
            *_disable_userns_option(),
            "--die-with-parent",
            "--clearenv",
        ]
        args += ["--uid", _NOBODY_UID, "--gid", _NOBODY_UID, "--cap-drop", "ALL"]
        args += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
        for folder in SYSTEM_FOLDERS:
            if os.path.islink(folder):
                args += ["--symlink", os.readlink(folder), folder]
            elif os.path.isdir(folder):
                args += ["--ro-bind", folder, folder]
        for path in (*ETC_PATHS, "/sys"):
            args += ["--ro-bind-try", path, path]
        args += ["--tmpfs", "/tmp"]
        if self.device != "cpu":
            for path in sorted({path for pattern in DEVICE_PATTERNS for path in glob.glob(pattern)}):
                args += ["--dev-bind", path, path]
        for folder in self._readable():
            args += ["--ro-bind", folder, folder]
        work = self.inside(str(self.work))
        args += ["--bind", str(self.work), work]
        if self.files:
            args += ["--ro-bind", str(self.files), self.inside(str(self.files))]
        for file, path in self.replaced:
            args += ["--ro-bind", str(file), self.inside(str(path))]
        for name, value in env.items():
            # The mark is the name of a folder. Processes inside need none, because they end with the sandbox.
            if name != MARK_VARIABLE:
                args += ["--setenv", name, self.inside(value)]
        return [*args, "--remount-ro", "/", "--chdir", work, "--"]


@cache
def _disable_userns_option() -> list[str]:
    """Return the option that forbids user namespaces inside, if this version of bwrap has it (from 0.8.0 on)."""
    result = subprocess.run(["bwrap", "--help"], capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
    return ["--disable-userns"] if b"--disable-userns" in result.stdout + result.stderr else []


def outermost_folders(folders: Iterable[str]) -> list[str]:
    """Return the existing folders that are inside none of the others and not part of the system."""
    outer: list[str] = []
    for folder in sorted({os.path.normpath(folder) for folder in folders if os.path.isabs(folder)}):
        is_nested = any(folder == other or folder.startswith(f"{other}/") for other in (*SYSTEM_FOLDERS, *outer))
        if os.path.isdir(folder) and not is_nested and folder != "/":
            outer.append(folder)
    return outer


def bubblewrap_problem() -> str:
    """Return why bubblewrap cannot be used, or "" if it can. Many systems forbid user namespaces."""
    if not shutil.which("bwrap"):
        return "bwrap is not installed"
    command = [*Sandbox(Path("/tmp"), Path("/usr/bin/true")).bubblewrap({}), "/usr/bin/true"]
    try:
        result = subprocess.run(command, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if result.returncode == 0 else result.stderr.decode("utf-8", "replace").strip()[:300] or "bwrap failed"


def sandbox_level(mode: SandboxMode, say: Callable[[str], object]) -> int:
    """Return the sandbox level of a mode on this machine. A warning goes to `say`.

    Raises:
        AgentError: The mode is "require", and bubblewrap cannot be used.
    """
    problem = "" if mode == "off" else bubblewrap_problem()
    if problem and mode == "require":
        raise AgentError(f"bubblewrap cannot be used: {problem}", "install bubblewrap, or leave out --sandbox require")
    if problem:
        say(f"children run without a sandbox: {problem}")
    return 0 if problem or mode == "off" else 2
