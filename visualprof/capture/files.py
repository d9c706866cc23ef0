"""Files of recordings: `<logdir>/<run>/<worker>.step<n>.<kind>.gz`, written atomically.

A run is a job, a worker one of its processes. A recording is named by its first step, so that recordings of the same
steps by several ranks have the same name.
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
_UNSAFE = re.compile(r"[^0-9A-Za-z-]+")  # no dot: the worker's name ends at the first one


@dataclass(frozen=True)
class Worker:
    """This process in its job.

    Attributes:
        rank: -1 without ranks.
        world_size: -1 without ranks.
    """

    rank: int
    world_size: int
    host: str
    pid: int

    @property
    def name(self) -> str:
        """`rank0_node7_4211`, or `node7_4211` without ranks."""
        host = _UNSAFE.sub("-", self.host).strip("-") or "host"
        return f"rank{self.rank}_{host}_{self.pid}" if self.rank >= 0 else f"{host}_{self.pid}"


def worker_of(facts: dict[str, Any]) -> Worker:
    """Return this process, from the framework's information about its ranks, else from the launcher's environment."""
    world = facts.get("world_size", _number(WORLDS))
    rank = facts.get("rank", _number(RANKS) if world > 1 else -1)
    return Worker(rank, world if rank >= 0 else -1, socket.gethostname().partition(".")[0], os.getpid())


def _number(names: tuple[str, ...]) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), -1)


def leads_host() -> bool:
    """Whether this process is the one that acts for its host."""
    return _number(LOCAL_RANKS) <= 0


_runs: dict[str, str] = {}


def run_name(logdir: str | os.PathLike[str], worker: Worker) -> str:
    """Return the name of this job's run, the same on all ranks without communication if possible.

    The name comes from the environment, else from the store that torch's ranks share, else from the start time of the
    process that launched the ranks of this host, else from the start time of this process.
    """
    key = os.path.abspath(logdir)
    if key not in _runs:
        job = next((os.environ[n] for n in JOBS if os.environ.get(n, "none") not in ("none", "")), "")
        start = _born(os.getppid() if worker.rank >= 0 else worker.pid)
        if not job and worker.rank >= 0:
            job = _agreed(sys.modules.get("torch.distributed"), start)
        _runs[key] = _UNSAFE.sub("_", job).strip("_") or start
    return _runs[key]


def _agreed(ranks: Any, wanted: str) -> str:
    """Return the name that the first rank wrote to torch's shared store, "" without a store. Waits for no rank."""
    if not ranks or not ranks.is_available() or not ranks.is_initialized():
        return ""
    try:
        store = ranks.distributed_c10d._get_default_store()  # noqa: SLF001
        return store.compare_set("visualprof/run", "", wanted).decode()
    except (AttributeError, NotImplementedError, RuntimeError):  # another kind of store
        return ""


@cache
def _born(pid: int) -> str:
    """Return the start of a host process, `2026-11-22_13-55-01_4211`; the current time if the system hides it."""
    ticks = started(pid)
    try:
        boot = next(line for line in Path("/proc/stat").read_text("ascii").splitlines() if line.startswith("btime"))
        at = int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK") if ticks else time.time()
    except (OSError, ValueError, StopIteration, AttributeError):
        at = time.time()
    return f"{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(at))}_{pid}"


def started(pid: int) -> int | None:
    """Return the start of a host process in ticks since boot, or None if it is hidden or does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else int(fields[19])  # a zombie
    except (OSError, ValueError, IndexError):
        return None


@dataclass
class RecordingStore:
    """Recordings of this process in a run, at most `most` files.

    Raises:
        CaptureError: Nothing can be written.
    """

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
        """Return the file of a recording that starts at this step."""
        used = {path.name for path in self._written}
        names = (f"{self.worker.name}.step{step}{f'.{i}' if i else ''}.{kind}.gz" for i in range(len(used) + 1))
        path = self.folder / next(name for name in names if name not in used)
        self._written.append(path)
        return path

    def surplus(self) -> list[Path]:
        """Return the oldest files beyond the limit, and forget them."""
        count = max(0, len(self._written) - self.most) if self.most else 0
        gone, self._written = self._written[:count], self._written[count:]
        return gone


def write(
    path: Path, dump: Callable[[Path], object], facts: dict[str, Any], replaced: tuple[bytes, bytes] | None
) -> None:
    """Write a recording atomically; nothing partial remains after a failure (torch leaves a `.tmp` file).

    Args:
        dump: Writes JSON to the path that it is given.
        facts: Like `pack`.
        replaced: Like `pack`.

    Raises:
        OSError: The disk is full, or the framework's file is incomplete.
    """
    raw = path.with_name(f".{path.name}.raw.part")
    try:
        dump(raw)
        pack(raw, path, facts, replaced)
    finally:
        for left in path.parent.glob(f"{raw.name}*"):
            left.unlink()


def pack(raw: Path, path: Path, facts: dict[str, Any], replaced: tuple[bytes, bytes] | None) -> None:
    """Check a framework's file, add the facts, compress it and rename it.

    Args:
        raw: JSON, an object or a list of events.
        facts: Become the key `visualprof` of the object. A list of events is put into an object.
        replaced: Bytes to replace, and a replacement of the same length.

    Raises:
        OSError: The disk is full, or the framework's file is incomplete.
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
                encoded = json.dumps(facts, separators=(",", ":")).encode()
                packed.write((b"]" if listed else b"") + b',"visualprof":' + encoded + b"}")
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _end(source: BinaryIO) -> tuple[int, bytes]:
    """Return the position of the closing bracket, and the bracket. No framework reports that the disk was full."""
    size = source.seek(0, os.SEEK_END)
    source.seek(max(0, size - 64))
    tail = source.read().rstrip()
    if tail[-1:] not in (b"}", b"]"):
        raise OSError(f"what the framework wrote is cut after {size:,} bytes; is the disk full?")
    source.seek(0)
    return max(0, size - 64) + len(tail) - 1, tail[-1:]


def _chunks(source: BinaryIO, end: int, replaced: tuple[bytes, bytes] | None) -> Iterator[bytes]:
    """Yield the bytes before `end` in pieces, with the replacement, also across two pieces."""
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
    """Warn the user without ending the training."""
    warnings.warn(text, CaptureWarning, stacklevel=2)
