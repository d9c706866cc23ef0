"""Derive run, worker and span of a file from its folder, its name, and the rank that it states.

A run is a set of processes that ran together, a worker is one of them, and a span is one recording of that process.

- A file named as profilers name a process's recording belongs to the run of its *folder*:
  `worker0.1623143089861.pt.trace.json.gz` (torch), `host_rank0_time_2026_11_20_03_52_43_834976.paddle_trace.json`
  (Paddle), `31337.chrome_timeline.json` (MegEngine), `rank0.pt.trace.json`, `trace.json`. The folder may hold many
  workers; the time stamp in the name is the span.
- A folder `rank0_1736408883704643_ascend_pt` of torch_npu is one worker, `rank0`, of the run of the folder that holds
  it. Its time stamp is the span. The files that belong to one recording are one span (`reader.ascend.folder`).
- Files of `visualprof.capture`, `rank0_node7_4211.step12.pt.trace.json.gz`, belong to the run of their folder. The
  first step is the span, the same for all ranks.
- `timeline.json`, `profile.json`, `memory.json` and `monitor.jsonl`, the result of a remote run, are workers of their
  folder's run as well. They are recordings of one process, so no view treats them as ranks.
- Measurements of Nsight Compute, `kernels.ncu-rep` or `kernels.ncu.csv`, are the worker `ncu_kernels` of their folder's
  run. It is not a rank either: the run's other recordings say when its kernels ran.
- A name with a rank and other words (`bert_rank0.json`, `bert_rank1.json`) is a worker of run `folder/bert`.
- If the file itself says which rank of how many it is, the number of that rank is left out of any name:
  `profile_0.json` and `trace_1.json` are workers of the run of their folder, `bert_0.json` and `bert_1.json` of run
  `folder/bert`.
- A folder named after the rank that its files state, `exp/rank0/trace.json`, is a worker of the run of the folder that
  holds it.
- Any other file is its own run, `folder/stem`, or `folder` if both have the same name (`cnn/cnn.pt.trace.json`); a time
  stamp at its end is the span. Several such files that state different ranks are one run, the run of their folder
  (`logdir.rank_files`).
- If files that torch names after a process have the same rank and different other words (`cnn_worker0.1623143089861`,
  `bert_worker0.1623213129365`), the words name their runs: `folder/cnn`, `folder/bert` (`logdir.same_ranks`).

Except for the last two rules, only the file itself decides, never its neighbors, so an id, and thus a link, stays valid
when other files appear or disappear. Files directly in the log directory form the run `.`, shown under the name of the
directory.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from visualprof.reader.ascend.folder import OUTPUT, WORKER_FOLDER
from visualprof.reader.registry import profile_suffixes

_GZIP_ENDING = re.compile(r"\.(gz|gzip)$", re.IGNORECASE)
_FORMAT_ENDING = re.compile(
    r"(\.pt\.trace|\.paddle_trace|\.chrome_timeline|[._]chrome_trace|\.trace|\.profile|\.prof)?\.(jsonl?|pb|pftrace|txt|raw|sqlite3?)$"
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
# `rank-0.Apr_03_18_51_38.1102`: date and process id
_MONTH_STAMP = re.compile(
    r"^(?P<worker>.+?)[-_.]+(?P<stamp>(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
    r"[-_]?\d{1,2}([-_.]\d{2}){2,4}([-_.]\d+)?)$",
    re.IGNORECASE,
)
_LEADING_STAMP = re.compile(r"^(?P<stamp>\d{9,19}(\.\d+)?)[-_.]+(?P<worker>.+)$")
_RANK = re.compile(
    r"(?<![A-Za-z0-9])(?:rank|worker|trainer|process|proc)(?:[-_]?|(?P<bracket>[\[(]))(?P<rank>\d{1,6})(?(bracket)[\])])"
    r"(?:[-_]?of[-_]?\d+)?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
# Places along the axes of a parallel program: `TP-0-DP-0-PP-0-EP-0`, `dp0_pp0_tp1`.
_AXIS = re.compile(
    r"(?<![A-Za-z0-9])(?:[cdemst]p|pp|dcp|pcp|etp|edp|vpp)[-_]?(?P<rank>\d{1,6})(?:[-_]?of[-_]?\d+)?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_HOST_WORKER = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)_\d{2,7}")  # and process id
# Names that only say "this is a profile": the folder names the run.
_PLAIN_NAME = re.compile(
    r"(|trace|trace_view|ascend_(?:pytorch|mindspore)_profiler"
    r"|profile|profiler|prof|timeline|memory|monitor(_.+)?|torch_trace|chrome_trace|ort_profile|onnxruntime_profile|results?)"
)
# The folder of a JAX or TensorFlow recording: its files are named after hosts.
_HOSTS_FOLDER = re.compile(r"(^|/)plugins/profile/[^/]+$")
# Result files of a remote run: recordings of one process, in the order in which they are opened.
RECORDING_KINDS = ("timeline", "profile", "memory", "monitor", "ncu")
_NCU_SUFFIXES = (".ncu-rep", ".ncu.csv")


class RunPath(msgspec.Struct, frozen=True):
    """Run and worker of a file.

    Attributes:
        run: Run id below the log directory, "." for the directory itself.
        worker: Worker id.
        stamp: Time stamp, "" if the name has none.
        rank: Rank, -1 if neither the file nor its name has one.
        words: Words of the name next to the rank that may name an experiment or a host, for a file of torch in the run
            of its folder; "" otherwise.
    """

    run: str
    worker: str
    stamp: str
    rank: int
    words: str = ""


class StatedRank(msgspec.Struct, frozen=True):
    """The rank that a file states, of a program with several.

    Attributes:
        rank: Global rank, -1 if the file states none.
        world_size: Number of ranks, -1 if the file states none.
    """

    rank: int = -1
    world_size: int = -1

    def __bool__(self) -> bool:
        return self.rank >= 0 and self.world_size > 1


NO_RANK = StatedRank()


def parse_run_path(folder: str, name: str, stated: StatedRank = NO_RANK) -> RunPath:
    """Return the run path of a file.

    Args:
        folder: The folder below the log directory, with `/`, "" for the log directory itself.
        name: The file's name.
        stated: The rank that the file states.
    """
    if ascend := _parse_ascend_folder(folder, stated):
        return ascend
    folder, worker_folder = _split_rank_folder(folder, stated)
    unpacked = _GZIP_ENDING.sub("", name)
    suffix = next((s for s in profile_suffixes() if unpacked.lower().endswith(s)), "")
    stem = (unpacked[: -len(suffix)] if suffix else _FORMAT_ENDING.sub("", unpacked)) or unpacked
    if suffix in _NCU_SUFFIXES:
        return RunPath(folder or ".", f"ncu_{stem}", "", -1)
    torch = unpacked.lower().endswith(".pt.trace.json")
    stamp_match = next(filter(None, (stamp.match(stem) for stamp in _STAMPS)), None)
    leading = None if stamp_match else _LEADING_STAMP.match(stem)
    if leading and _find_rank(leading["worker"], stated)[1] != leading["worker"]:
        stamp_match = leading
    worker, stamp = (stamp_match["worker"], stamp_match["stamp"]) if stamp_match else (stem, "")
    rank, base = _find_rank(worker, stated)
    by_torch = torch and stamp_match is not None and stamp_match.re is _EPOCH_STAMP
    by_process = by_torch or (stamp_match is not None and stamp_match.re in (_CAPTURE_STAMP, _PADDLE_STAMP))
    if (
        by_process
        or _HOSTS_FOLDER.search(folder)
        or _PLAIN_NAME.fullmatch(base.lower())
        or (base.isascii() and base.isdigit())
    ):
        run = folder or "."
    elif folder.rpartition("/")[2] == base:
        run = folder
    else:
        run = f"{folder}/{base}" if folder else base
    if worker_folder:
        return RunPath(run, worker_folder, stamp, rank)
    is_rank_in_name = _find_rank(worker, NO_RANK)[0] >= 0
    return RunPath(run, worker, stamp, rank, base if by_torch and is_rank_in_name else "")


def _split_rank_folder(folder: str, stated: StatedRank) -> tuple[str, str]:
    """Return the folder of the run, and the name of a folder in it that holds the files of the stated rank, else ""."""
    outer, _, name = folder.rpartition("/")
    match = _RANK.search(name)
    if not stated or match is None or int(match["rank"]) != stated.rank:
        return folder, ""
    return "/".join(filter(None, (outer, _find_rank(name, stated)[1]))), name


def _parse_ascend_folder(folder: str, stated: StatedRank) -> RunPath | None:
    """Return the run path of a recording in a folder of torch_npu, `None` for another folder."""
    parts = [part for part in folder.split("/") if part]
    if parts[-1:] == [OUTPUT]:
        parts = parts[:-1]
    match = WORKER_FOLDER.match(parts[-1]) if parts else None
    if match is None:
        return None
    worker = match["worker"]
    return RunPath("/".join(parts[:-1]) or ".", worker, match["stamp"] or "", _find_rank(worker, stated)[0])


_STAMPS = (_CAPTURE_STAMP, _PADDLE_STAMP, _EPOCH_STAMP, _DATE_STAMP, _MONTH_STAMP)
_SEPARATORS = "-_. "


def _find_rank(worker: str, stated: StatedRank) -> tuple[int, str]:
    """Return the rank of a worker, -1 for none, and its name without the rank."""
    rank_match, axes = _RANK.search(worker), list(_AXIS.finditer(worker))
    base = _AXIS.sub("", _RANK.sub("", worker, count=1))
    if rank_match or axes:
        base = re.sub(rf"([{_SEPARATORS}])[{_SEPARATORS}]+", r"\1", base).strip(_SEPARATORS)
    elif stated:
        base = _without_number(worker, stated.rank)
    else:
        base = base.strip(_SEPARATORS)
    if stated:
        return stated.rank, base
    if rank_match:
        return int(rank_match["rank"]), base
    return int(axes[0]["rank"]) if len(axes) == 1 else -1, base


def _without_number(name: str, number: int) -> str:
    """Return the name without a number: the last one between separators, else the last one at the end of a word."""
    matches = list(re.finditer(rf"(?<![A-Za-z0-9])0*{number}(?![A-Za-z0-9])", name))
    matches = matches or list(re.finditer(rf"(?<![0-9])0*{number}(?![A-Za-z0-9])", name))
    if not matches:
        return name
    return f"{name[: matches[-1].start()]}{name[matches[-1].end() :]}".strip(_SEPARATORS)


def worker_host(worker: str) -> str:
    """Return the host after which torch named a recording, as in `node7_4211`; "" for any other worker."""
    named = _HOST_WORKER.fullmatch(worker)
    return named["host"] if named and not _RANK.search(worker) else ""


def recording_order(worker: str) -> int:
    """Return the sort order of a worker in a run without ranks.

    The timeline comes first, the monitor and Nsight Compute last.
    """
    return {"timeline": -1, "memory": 1, "monitor": 2, "ncu": 3}.get(recording_kind(worker), 0)


def recording_kind(worker: str) -> str:
    """Return which of `RECORDING_KINDS` a worker is, "" for a process.

    There may be several, as `monitor_node7` per host.
    """
    kind = next((kind for kind in ("monitor", "ncu") if worker.startswith(f"{kind}_")), worker)
    return kind if kind in RECORDING_KINDS else ""


_DIGITS = re.compile(r"([0-9]+)")


def natural_key(text: str) -> tuple[Any, ...]:
    """Return a sort key of alternating words and numbers, so that rank2 precedes rank10."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(text)))
