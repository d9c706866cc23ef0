"""Match ids that are unique within a process only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_int64

import numpy as np

from visualprof.reader.native import INT32, INT64, UINT8, function
from visualprof.reader.trace import Category, Track, TrackKind
from visualprof.reader.trace.types import Ids, Ints, Mask, Rows, Values

# Tools that merge the files of several ranks put a label before each pid: `[TP00] 4000`.
_LABEL = re.compile(r"\s*\[(?P<label>[^\[\]]{1,100})\]\s*\S")
MAX_ID_RANGE_RATIO = 4  # if the id range exceeds this multiple of the events, ids are searched instead of tabulated
UNKNOWN_PROCESS = -1
MIN_VALID_SHARE = 0.99  # of the kernels of a device that start after the calls of the process that drives it
MAX_DELAY_RATIO = 0.5  # of the median launch delays of two processes between which these decide


def rank_label(pid: str) -> str:
    """Return the label that a tool put before the pid when it merged the files of several ranks, "" without one."""
    labeled = _LABEL.match(pid)
    return labeled["label"] if labeled else ""


def number_processes(pids: Iterable[str]) -> Ids:
    """Return a number per pid, the same for equal pids and for pids with the same label of a rank."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(rank_label(pid) or pid, len(numbers)) for pid in pids], np.int32)


def number_track_processes(tracks: Sequence[Track]) -> Ids:
    """Return a number per track, the same for tracks of one process.

    Some profilers store streams under the number of their device instead of a pid. If they do so for any stream, a
    stream does not belong to the process that happens to have the number of its device.
    """
    threads = {track.pid for track in tracks if track.kind is TrackKind.THREAD}
    by_device = [track.kind is not TrackKind.THREAD and track.pid == str(track.device) for track in tracks]
    is_numbered = any(named and track.pid not in threads for named, track in zip(by_device, tracks, strict=True))
    return number_processes(
        f"device {track.pid}" if named and is_numbered else track.pid
        for named, track in zip(by_device, tracks, strict=True)
    )


class Calls:
    """Calls with ids that several processes may have used, in the order of (id, process).

    Args:
        ids: (n,) ids, of equal ids in a process the preferred one first.
        process: (n,) processes.
        ts: (n,) ns.
        row: (n,) rows in the file.
    """

    def __init__(self, ids: Ints, process: Ids, ts: Ints, row: Ints) -> None:
        order = np.lexsort((process, ids))
        self._ids, self._process, self._ts = ids[order], process[order], ts[order]
        self.processes: list[int] = np.unique(process).tolist()
        by_row = np.argsort(row, kind="stable")
        self._rows, self._process_by_row = row[by_row], process[by_row]

    def resolve(self, wanted: Ints, device: Ints, ts: Ints, row: Ints) -> Ids:
        """Return the process (m,) that launched each piece of device work, `UNKNOWN_PROCESS` if nothing decides.

        - In a file that lists one process after the other, each with its work, work belongs to the process whose calls
          surround it.
        - Otherwise all work of a device belongs to the process after whose calls it starts. If that holds for several,
          it is the one with clearly the shortest launch delays.

        Args:
            wanted: (m,) ids of the work.
            device: (m,) device of the work.
            ts: (m,) ns.
            row: (m,) rows in the file.
        """
        is_valid = np.stack([self._delays(wanted, ts, process) >= 0 for process in self.processes])
        in_file = self._surrounding_process(row, is_valid)
        if in_file is not None:
            return in_file
        process = np.full(len(wanted), UNKNOWN_PROCESS, np.int32)
        for number in np.unique(device):
            rows = np.flatnonzero(device == number)
            share = is_valid[:, rows].mean(axis=1)
            candidates = np.flatnonzero(share >= max(MIN_VALID_SHARE * share.max(), 1e-9))
            if len(candidates) > 1:
                candidates = self._nearest(candidates, wanted[rows], ts[rows])
            if len(candidates) == 1:
                process[rows] = self.processes[int(candidates[0])]
        return process

    def shared_ids(self) -> Ints:
        """Return the ids that several processes use."""
        is_other_process = (self._ids[1:] == self._ids[:-1]) & (self._process[1:] != self._process[:-1])
        return np.unique(self._ids[1:][is_other_process])

    def _delays(self, wanted: Ints, ts: Ints, process: int) -> Ints:
        """Return the time from the call of a process with each id, -1 if there is no call before."""
        selected = np.flatnonzero(self._process == process)
        ids = self._ids[selected]
        index = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        return np.where(ids[index] == wanted, np.maximum(ts - self._ts[selected[index]], -1), -1)

    def _surrounding_process(self, row: Ints, is_valid: Mask) -> Ids | None:
        """Return the process by the order of the file, `None` if the file is not in the order of its processes."""
        if np.count_nonzero(np.diff(self._process_by_row)) != len(self.processes) - 1:
            return None
        position = np.searchsorted(self._rows, row)
        for index in (np.maximum(position - 1, 0), np.minimum(position, len(self._rows) - 1)):
            process = self._process_by_row[index]
            share = is_valid[np.searchsorted(self.processes, process), np.arange(len(row))].mean()
            if share >= MIN_VALID_SHARE and len(np.unique(process)) == len(self.processes):
                return process
        return None

    def _nearest(self, candidates: Ints, wanted: Ints, ts: Ints) -> Ints:
        """Return the candidate with the shortest launch delay, or all of them if the shortest delay is not clear."""
        delays = [self._delays(wanted, ts, self.processes[int(candidate)]) for candidate in candidates]
        medians = [float(np.median(delay[delay >= 0])) for delay in delays]
        first, second = sorted(range(len(medians)), key=medians.__getitem__)[:2]
        return candidates[[first]] if medians[first] < MAX_DELAY_RATIO * medians[second] else candidates


def match_ids(ids: Ints, process: Ids, wanted: Ints, seeker: Ids) -> Rows:
    """Return the entry of each wanted id, -1 for none: the first entry with the id in the same process.

    If none of a process's ids are found in its own process, an id that exists in exactly one other process matches.
    Kernels need this, as their process is the device's number.

    Args:
        ids: (n,) ids of the entries, preferred ones first.
        process: (n,) processes of the entries.
        wanted: (m,) the ids to look up.
        seeker: (m,) the processes that look them up.
    """
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.lexsort((process, ids))
    ids, entry_process = ids[order], process[order]
    first = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    is_match = ids[first] == wanted
    if entry_process.min() < entry_process.max():
        last = np.searchsorted(ids, wanted, side="right") - 1
        keys = np.concatenate(([0], np.cumsum(ids[1:] != ids[:-1]))) * (int(entry_process.max()) + 1) + entry_process
        exact = np.minimum(np.searchsorted(keys, keys[first] - entry_process[first] + seeker), len(ids) - 1)
        same = (ids[exact] == wanted) & (entry_process[exact] == seeker)
        is_match &= same | ((entry_process[first] == entry_process[last]) & ~np.isin(seeker, seeker[same]))
        first = np.where(same, exact, first)
    return np.where(is_match, order[first], -1)


def match_launches(columns: Mapping[str, Values], tracks: Sequence[Track]) -> tuple[Rows, Rows]:
    """Return rows of (call, device event) with the same process and correlation id; one call may launch many."""
    corr, track, category = columns["corr"], columns["track"], columns["category"]
    kinds = np.array([t.kind for t in tracks], np.int8)
    process = number_track_processes(tracks)
    calls = np.flatnonzero((corr > 0) & (kinds == TrackKind.THREAD)[track])
    calls = calls[np.argsort(category[calls] != Category.RUNTIME, kind="stable")]
    call_process, ids = process[track[calls]], corr[calls]
    streams = kinds == TrackKind.STREAM
    low, size = (int(ids.min()), int(np.ptp(ids)) + 1) if len(ids) else (1, 0)
    native = function("vp_match_launches", c_int64, INT64, INT32, c_int64, UINT8, INT32, c_int64, c_int64, INT32, INT32)
    if native and len(calls) and call_process.min() == call_process.max() and size <= MAX_ID_RANGE_RATIO * len(corr):
        table = np.full(size, -1, np.int32)
        table[ids[::-1] - low] = calls[::-1]  # the last assignment wins: that of the first call
        src, dst = np.empty((2, len(corr)), np.int32)
        count = native(corr, track, len(corr), streams.view(np.uint8), table, low, size, src, dst)
        return src[:count], dst[:count]
    device = np.flatnonzero((corr > 0) & streams[track])
    seeker = process[track[device]]
    if len(calls) and call_process.min() < call_process.max():
        made = Calls(ids, call_process, columns["ts"][calls], columns["row"][calls])
        shared = np.isin(corr[device], made.shared_ids()) & ~np.isin(seeker, made.processes)
        rows, numbers = device[shared], np.array([t.device for t in tracks], np.int64)
        if len(rows):
            found = made.resolve(corr[rows], numbers[track[rows]], columns["ts"][rows], columns["row"][rows])
            seeker[shared] = np.where(found >= 0, found, seeker[shared])
    index = match_ids(ids, call_process, corr[device], seeker)
    return calls[index[index >= 0]], device[index >= 0]
