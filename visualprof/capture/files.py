"""Where a recording goes: `<logdir>/<run>/<worker>.step<n>.<kind>.gz`, written beside and renamed.

A run is a job, a worker one of its processes, a recording is called by its first step, so that the recordings that
ranks make of the same steps have the same name.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.capture.options import CaptureError, CaptureWarning

CHUNK = 1 << 20
JOBS = ("VISUALPROF_RUN", "SLURM_JOB_ID", "PADDLE_JOB_ID", "TORCHELASTIC_RUN_ID")
RANKS = ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
WORLDS = ("WORLD_SIZE", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
LOCAL_RANKS = ("LOCAL_RANK", "PADDLE_RANK_IN_NODE", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_UNSAFE = re.compile(r"[^0-9A-Za-z-]+")  # no dot: what follows the first one is no part of the worker


@dataclass(frozen=True)
class Worker:
    """This process in its job. rank, world_size: -1 where there are no ranks."""

    rank: int
    world_size: int
    host: str
    pid: int

    @property
    def name(self) -> str:
        """`rank0_node7_4211`, or `node7_4211` where there are no ranks."""
        host = _UNSAFE.sub("-", self.host).strip("-") or "host"
        return f"rank{self.rank}_{host}_{self.pid}" if self.rank >= 0 else f"{host}_{self.pid}"


def worker_of(facts: dict[str, Any]) -> Worker:
    """This process, by what the framework says of its ranks, else by what its launcher left in the environment."""
    world = facts.get("world_size", _number(WORLDS))
    rank = facts.get("rank", _number(RANKS) if world > 1 else -1)
    return Worker(rank, world if rank >= 0 else -1, socket.gethostname().partition(".")[0], os.getpid())


def _number(names: tuple[str, ...]) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), -1)


def leads_host() -> bool:
    """The one process of its host that speaks for the host."""
    return _number(LOCAL_RANKS) <= 0


_runs: dict[str, str] = {}


def run_name(logdir: str | os.PathLike[str], worker: Worker) -> str:
    """The run of this job in a log directory, the same in all its ranks without a message where that can be done.

    By the environment, else by the store that torch's ranks share, else by the start of the process that launched the
    ranks of this host, else by that of this process.
    """
    key = os.path.abspath(logdir)
    if key not in _runs:
        given = next((os.environ[n] for n in JOBS if os.environ.get(n, "none") not in ("none", "")), "")
        own = _born(os.getppid() if worker.rank >= 0 else worker.pid)
        if not given and worker.rank >= 0:
            given = _agreed(sys.modules.get("torch.distributed"), own)
        _runs[key] = _UNSAFE.sub("_", given).strip("_") or own
    return _runs[key]


def _agreed(ranks: Any, wanted: str) -> str:
    """What the first rank that asked wanted, by the store that torch's ranks share; waits for nobody. "" without."""
    if not ranks or not ranks.is_available() or not ranks.is_initialized():
        return ""
    try:
        store = ranks.distributed_c10d._get_default_store()  # noqa: SLF001
        return store.compare_set("visualprof/run", "", wanted).decode()
    except (AttributeError, NotImplementedError, RuntimeError):  # a store of another kind
        return ""


@cache
def _born(pid: int) -> str:
    """Start of a process of this host, `2026-11-22_13-55-01_4211`; that of this moment where the system hides it."""
    ticks = started(pid)
    try:
        boot = next(line for line in Path("/proc/stat").read_text("ascii").splitlines() if line.startswith("btime"))
        at = int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK") if ticks else time.time()
    except (OSError, ValueError, StopIteration, AttributeError):
        at = time.time()
    return f"{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(at))}_{pid}"


def started(pid: int) -> int | None:
    """Start of a process of this host in ticks after that of the system; None where there is none, or it is hidden."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return None if said[0] in ("Z", "X") else int(said[19])  # dead, but nobody has asked for its status
    except (OSError, ValueError, IndexError):
        return None


@dataclass
class Shelf:
    """The files of this process in a run, at most `most` of them. Raises CaptureError where nothing can be written."""

    folder: Path
    worker: Worker
    most: int
    _written: list[Path] = field(default_factory=list[Path])

    def __post_init__(self) -> None:
        probe = self.folder / f".{self.worker.name}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise CaptureError(
                f"capture cannot write into {self.folder}: {error.strerror or error}", "give another logdir"
            ) from None

    def place(self, step: int, kind: str) -> Path:
        """The file of a recording that begins at this step."""
        taken = {path.name for path in self._written}
        names = (f"{self.worker.name}.step{step}{f'.{i}' if i else ''}.{kind}.gz" for i in range(len(taken) + 1))
        path = self.folder / next(name for name in names if name not in taken)
        self._written.append(path)
        return path

    def surplus(self) -> list[Path]:
        """The oldest files, which are to go; they are none of its files any more."""
        count = max(0, len(self._written) - self.most) if self.most else 0
        gone, self._written = self._written[:count], self._written[count:]
        return gone


def write(
    path: Path, dump: Callable[[Path], object], facts: dict[str, Any], replaced: tuple[bytes, bytes] | None
) -> None:
    """Make a file of what `dump` writes; leaves nothing beside it, whatever fails (torch has a `.tmp` of its own).

    Args:
        dump: writes JSON into the path that it is given.
        facts, replaced: as `pack` takes them.

    Raises:
        OSError: the disk is full, or what the framework wrote is not whole.
    """
    raw = path.with_name(f".{path.name}.raw.part")
    try:
        dump(raw)
        pack(raw, path, facts, replaced)
    finally:
        for left in path.parent.glob(f"{raw.name}*"):
            left.unlink()


def pack(raw: Path, path: Path, facts: dict[str, Any], replaced: tuple[bytes, bytes] | None) -> None:
    """Make the file of what a framework wrote: checked, with the facts in it, gzipped, renamed.

    Args:
        raw: JSON, an object or a list of events.
        facts: they become the key `visualprof` of the object; a list of events is put into one.
        replaced: bytes and what stands for them, as long.

    Raises:
        OSError: the disk is full, or what the framework wrote is not whole.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with raw.open("rb") as source:
            end, closing = _end(source)
            with part.open("wb") as target, gzip.GzipFile("", "wb", 1, target, 0) as packed:
                listed = closing == b"]"
                packed.write(b'{"traceEvents":' if listed else b"")
                for chunk in _chunks(source, end, replaced):
                    packed.write(chunk)
                said = json.dumps(facts, separators=(",", ":")).encode()
                packed.write((b"]" if listed else b"") + b',"visualprof":' + said + b"}")
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _end(source: BinaryIO) -> tuple[int, bytes]:
    """Place of the closing bracket, and the bracket. No framework says that the disk was full while it wrote."""
    size = source.seek(0, os.SEEK_END)
    source.seek(max(0, size - 64))
    tail = source.read().rstrip()
    if tail[-1:] not in (b"}", b"]"):
        raise OSError(f"what the framework wrote is cut after {size:,} bytes; is the disk full?")
    source.seek(0)
    return max(0, size - 64) + len(tail) - 1, tail[-1:]


def _chunks(source: BinaryIO, end: int, replaced: tuple[bytes, bytes] | None) -> Iterator[bytes]:
    """The bytes before `end` in pieces, with the replacement, also where it lies across two pieces."""
    keep = len(replaced[0]) - 1 if replaced else 0
    rest = b""
    while end > 0:
        chunk = source.read(min(CHUNK, end))
        end -= len(chunk)
        rest += chunk
        if replaced:
            rest = rest.replace(*replaced)
        cut = max(0, len(rest) - keep) if end and chunk else len(rest)
        yield rest[:cut]
        rest = rest[cut:]
        if not chunk:
            raise OSError("what the framework wrote was cut while it was read")


def warn(text: str) -> None:
    """Tell the user without ending the training."""
    warnings.warn(text, CaptureWarning, stacklevel=2)
