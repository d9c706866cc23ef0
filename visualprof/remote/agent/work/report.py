"""The end of a task: its result's folder is completed, uploaded, and the task finished."""

from __future__ import annotations

import threading
import time
from typing import Any

from visualprof.remote.agent.faults import Failure, Outcome, Stale
from visualprof.remote.agent.files import inside, is_plain, listed, place
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.client import Answered, Client, Stopped, retried
from visualprof.remote.agent.work import counters, points, results
from visualprof.remote.agent.work.folders import Work
from visualprof.remote.agent.work.results import Facts
from visualprof.remote.agent.work.stages import Said
from visualprof.remote.protocol import Lease

FINISHES = 2
SMALL = 1 << 20
KINDS = ("chrome_list", "chrome_object")


def make_room(work: Work) -> None:
    """Removes the large files of a result whose disk became full: they are not whole."""
    for each in listed(work.out):
        if is_plain(each) and each.stat().st_size > SMALL:
            each.unlink()


def assemble(work: Work, lease: Lease, facts: Facts, said: Said, outcome: Outcome, warnings: list[str]) -> None:
    """Adds the agent's files to what the child left. warnings: gets those of the profiles. Raises: OSError."""
    if work.out.is_symlink() or not work.out.is_dir():
        work.out.unlink(missing_ok=True)
        work.out.mkdir(parents=True)
    for file, target in ((work.monitor, "monitor.jsonl"), (work.log, "log.txt")):
        if file.is_file():
            place(file, work.out / target)
    points.complete(work.out / "points.jsonl", work.monitor)
    _add_counters(work, said.profiles, warnings)
    times = {"started_ns": facts.started_ns, "finished_ns": time.time_ns(), "load_ns": said.load_ns}
    profiles = [results.profile(each) for each in said.profiles]
    results.write(work.out, "job.json", results.job(lease))
    results.write(work.out, "env.json", results.env(lease, facts, said.effective))
    results.write(work.out, "status.json", results.status(outcome, warnings, times, profiles))


def _add_counters(work: Work, profiles: list[dict[str, Any]], warnings: list[str]) -> None:
    """The monitor's samples in each profile that can take them."""
    for each in profiles:
        kind, start = each.get("counters"), each.get("start_ns")
        file = inside(work.out, str(each.get("file") or "\0"))
        if file is None or kind not in KINDS or not isinstance(start, int) or start <= 0:
            continue
        try:
            profile = counters.Profile(file, kind, start, each["begin_ns"], each["end_ns"], each["pid"])
            counters.add(profile, work.monitor)
        except ValueError as error:
            warnings.append(f"a profile is shown without the monitor's counters: {error}")


class Report:
    """Of one task. stop: somebody wants the work to end. leave: nobody wants the report, or the agent leaves now."""

    def __init__(
        self,
        client: Client,
        lease: Lease,
        work: Work,
        warnings: list[str],
        stop: threading.Event,
        leave: threading.Event,
    ) -> None:
        self._client = client
        self._lease = lease
        self._work = work
        self._warnings = warnings
        self._stop = stop
        self._leave = leave

    def send(self, outcome: Outcome) -> str:
        """Uploads and finishes; returns in words how. An upload that is cancelled makes the task cancelled.

        Raises: Stale. Stopped: the agent leaves.
        """
        try:
            return self._send(outcome)
        except Failure as failure:
            return self.finish(failure.outcome(), [])
        except Stopped:
            if self._leave.is_set():
                raise
            return self.finish(Outcome(state="cancelled", reason=None, error=None, hint=None), [])

    def _send(self, outcome: Outcome) -> str:
        for _ in range(FINISHES):
            names = self._upload(outcome)
            try:
                return self.finish(outcome, names)
            except Answered as error:
                if error.status == 507:
                    raise Failure("disk_full", f"the server's disk is full: {error.error}") from None
                # 422: something did not arrive as it left; `uploads` says what.
        raise Failure("upload_failed", "the result did not arrive whole, though it was sent twice")

    def _upload(self, outcome: Outcome) -> list[str]:
        pieces, left_out = transfer.pieces_of(self._work.out)
        if left_out:
            self._warnings.append(
                f"left out of the result, because they are no plain files: {', '.join(left_out[:10])}"
            )
        stop = self._leave if outcome["state"] == "cancelled" else self._stop
        transfer.send(self._client, self._lease.task, self._lease.lease, pieces, stop)
        return [piece.name for piece in pieces]

    def finish(self, outcome: Outcome, files: list[str]) -> str:
        """Ends the task.

        Raises: Stale. Stopped. Answered: 422, a file is missing or differs; 507, the server's disk is full.
        """
        body = {**outcome, "warnings": self._warnings, "files": files}
        path = f"tasks/{self._lease.task}/finish?lease={self._lease.lease}"
        try:
            retried(lambda: self._client.post(path, body), self._leave)
        except Answered as error:
            if error.status in (422, 507) and files:
                raise
            raise Stale(str(error)) from None
        return ": ".join(filter(None, (outcome["reason"] or outcome["state"], outcome["error"])))
