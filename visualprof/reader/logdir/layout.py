"""Run, worker and span of a file, from its place and name alone.

A run is what ran together, a worker one of its processes, a span one recording of that process.

- A file named the way profilers name a process's recording belongs to the run of its *folder*:
  `worker0.1623143089861.pt.trace.json.gz` (torch), `host_rank0_time_2026_11_20_03_52_43_834976.paddle_trace.json`
  (Paddle), `31337.chrome_timeline.json` (MegEngine), `rank0.pt.trace.json`, `trace.json`.
  The folder may hold many workers; the stamp in the name is the span.
- What `visualprof.capture` wrote, `rank0_node7_4211.step12.pt.trace.json.gz`, belongs to the run of its folder;
  the first step is the span, the same of all ranks.
- `timeline.json`, `profile.json`, `memory.json` and `monitor.jsonl`, the result of a remote run, are workers of their
  folder's run too, but recordings of one process: no view takes them for ranks.
- What Nsight Compute measured, `kernels.ncu-rep` or `kernels.ncu.csv`, is worker `ncu_kernels` of its folder's run,
  and no rank either: the run's other recordings say when its kernels ran.
- A name with a rank and words of its own (`bert_rank0.json`, `bert_rank1.json`) is a worker of run `folder/bert`.
- Any other file is a run of its own, `folder/stem`; a time stamp at its end makes spans of it.

Only the name of the file itself decides, never its neighbours: an id, and so a link to it, stays the
same when other files come and go. Files directly in the log directory form the run `.`, shown under
the name of the directory.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from visualprof.reader.registry import profile_suffixes

_GZIP_ENDING = re.compile(r"\.(gz|gzip)$", re.IGNORECASE)
_FORMAT_ENDING = re.compile(
    r"(\.pt\.trace|\.paddle_trace|\.chrome_timeline|[._]chrome_trace|\.trace|\.profile|\.prof)?\.(jsonl?|pb|pftrace|txt|raw)$"
    r"|\.(trace|prof|profile|pftrace|perfetto-trace)$",
    re.IGNORECASE,
)
_PADDLE_STAMP = re.compile(r"^(?P<worker>.+)_time_(?P<stamp>\d{4}(_\d+){5,6})$")
_EPOCH_STAMP = re.compile(r"^(?P<worker>.+)\.(?P<stamp>\d{10,19})$")
_CAPTURE_STAMP = re.compile(r"^(?P<worker>.+)\.(?P<stamp>step\d+(\.\d+)?)$")
_DATE_STAMP = re.compile(
    r"^(?P<worker>.+?)[-_. ]+(?P<stamp>(19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d"
    r"([-_.T ]?[0-2]\d[-_.:]?[0-5]\d([-_.:]?[0-5]\d([-_.]\d+)?)?)?)$"
)
_RANK = re.compile(
    r"(?<![A-Za-z0-9])(?:rank|worker|trainer|process|proc)[-_]?(?P<rank>\d{1,6})(?:[-_]?of[-_]?\d+)?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_HOST_WORKER = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)_\d{2,7}")  # and its process
# Names that say only "this is a profile": the folder says whose.
_PLAIN_NAME = re.compile(
    r"(|trace|profile|profiler|prof|timeline|memory|monitor(_.+)?|torch_trace|chrome_trace|ort_profile|onnxruntime_profile|results?)"
)
# The folder of a recording of JAX or TensorFlow: its files are called after the hosts.
_HOSTS_FOLDER = re.compile(r"(^|/)plugins/profile/[^/]+$")
# What a remote run leaves in its folder: recordings of one process, the one that is opened first before the others.
RECORDING_KINDS = ("timeline", "profile", "memory", "monitor", "ncu")
_NCU_SUFFIXES = (".ncu-rep", ".ncu.csv")


class RunPath(msgspec.Struct, frozen=True):
    """Where a file stands.

    run: its id below the log directory, "." for the directory itself. stamp: "" without a time in the name.
    rank: -1 when the name has none.
    """

    run: str
    worker: str
    stamp: str
    rank: int


def parse_run_path(folder: str, name: str) -> RunPath:
    """The place of a file.

    Args:
        folder: the folder below the log directory, with `/`, "" for the log directory itself.
        name: the file's name.
    """
    unpacked = _GZIP_ENDING.sub("", name)
    suffix = next((s for s in profile_suffixes() if unpacked.lower().endswith(s)), "")
    stem = (unpacked[: -len(suffix)] if suffix else _FORMAT_ENDING.sub("", unpacked)) or unpacked
    if suffix in _NCU_SUFFIXES:
        return RunPath(folder or ".", f"ncu_{stem}", "", -1)
    torch = unpacked.lower().endswith(".pt.trace.json")
    stamp_match = (
        _CAPTURE_STAMP.match(stem) or _PADDLE_STAMP.match(stem) or _EPOCH_STAMP.match(stem) or _DATE_STAMP.match(stem)
    )
    worker, stamp = (stamp_match["worker"], stamp_match["stamp"]) if stamp_match else (stem, "")
    rank_match = _RANK.search(worker)
    base = (worker[: rank_match.start()] + worker[rank_match.end() :] if rank_match else worker).strip("-_. ")
    by_process = bool(stamp_match) and (
        stamp_match.re in (_CAPTURE_STAMP, _PADDLE_STAMP) or (torch and stamp_match.re is _EPOCH_STAMP)
    )
    if (
        by_process
        or _HOSTS_FOLDER.search(folder)
        or _PLAIN_NAME.fullmatch(base.lower())
        or (base.isascii() and base.isdigit())
    ):
        run = folder or "."
    else:
        run = f"{folder}/{base}" if folder else base
    return RunPath(run, worker, stamp, int(rank_match["rank"]) if rank_match else -1)


def worker_host(worker: str) -> str:
    """The host that torch names a recording after, as in `node7_4211`; "" of any other worker."""
    named = _HOST_WORKER.fullmatch(worker)
    return named["host"] if named and not _RANK.search(worker) else ""


def recording_order(worker: str) -> int:
    """Which worker of a run without ranks comes first: the timeline before the others, the monitor last."""
    return {"timeline": -1, "memory": 1, "monitor": 2, "ncu": 3}.get(recording_kind(worker), 0)


def recording_kind(worker: str) -> str:
    """Which of RECORDINGS a worker is, "" for a process; there may be several, as `monitor_node7` of each host."""
    kind = next((kind for kind in ("monitor", "ncu") if worker.startswith(f"{kind}_")), worker)
    return kind if kind in RECORDING_KINDS else ""


_DIGITS = re.compile(r"([0-9]+)")


def natural_key(text: str) -> tuple[Any, ...]:
    """A sort key by which rank2 comes before rank10: words and numbers in turns."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(text)))
