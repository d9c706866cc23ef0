"""Handle a recording request on the training thread: answer it, start together with all ranks, end."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from visualprof.capture import live, notes, session
from visualprof.capture.files import Worker, warn
from visualprof.capture.live import Ack, Request
from visualprof.capture.options import CaptureError, Options
from visualprof.capture.session import Recording
from visualprof.messages import msg

NEVER = 1 << 62


@dataclass(frozen=True)
class Place:
    """Identity of this process in its run and what can be recorded, as in `live.Heartbeat`."""

    worker: Worker
    folder: Path
    framework: str
    can: list[str]
    problem: str


class RequestHandler:
    """Handler of one request at a time.

    Attributes:
        marks: Step and mark of recordings that started and ended.
        written: Recordings that are being written.

    Args:
        options: Options of each recording, except for those that a request chooses.
    """

    def __init__(self, options: Options, place: Place) -> None:
        self._options = options
        self._place = place
        self._asked: Request | None = None
        self._turn = 0
        self._recording: Recording | None = None
        self._thread = 0
        self.ack = Ack("", "", 0)
        self.marks: deque[tuple[int, int]] = deque()
        self.written: deque[tuple[Recording, Ack]] = deque()
        self._unsaid = False

    @property
    def state(self) -> str:
        """State as in `live.Heartbeat`."""
        return (
            "recording" if self._recording else "armed" if self._asked else "writing" if self.written else "listening"
        )

    def wake(self, count: int) -> int:
        """Return the next step at which there is something to do."""
        if self._recording:
            return count + 1
        return self._asked.starts[self._turn] if self._asked else NEVER

    def step(self, count: int) -> None:
        """Handle the end of a step and the start of the next one."""
        if self._recording:
            if threading.get_ident() == self._thread and not self._recording.step():
                self._recorded(self._recording, count)
        elif self._asked and count >= self._asked.starts[self._turn]:
            self._start_or_wait(self._asked, count)

    def consider(self, asked: Request, count: int) -> None:
        """Answer a request: armed for the first start that is still possible, late, or refused."""
        if self._recording:  # the running recording covers the request
            return
        if self._asked:
            self.give_up("late", msg("capture.another_request_took_place", "another request took its place"), count)
        self._asked, self.ack = asked, Ack(asked.id, "", count)
        refusal = self._place.problem
        try:
            session.arm(self._wanted(asked)).cancel()
        except CaptureError as error:
            refusal = refusal or str(error)
        in_time = [turn for turn, step in enumerate(asked.read_by) if count <= step]
        if refusal:
            self.give_up("refused", refusal, count)
        elif not asked.starts:
            self._start(asked, count)
        elif not in_time:
            self.give_up(
                "late",
                msg("capture.read_request_after_last", "it read the request after the last step to begin with"),
                count,
            )
        else:
            self._turn = in_time[0]
            self._answer("armed")

    def _start_or_wait(self, asked: Request, count: int) -> None:
        """Start recording, or wait for the next start if a worker is not ready."""
        acks = {name: live.answer(self._place.folder, asked, name) for name in asked.workers}
        start = asked.starts[self._turn]  # workers that already recorded from this start were faster
        out = [name for name, ack in acks.items() if ack and ack.state in live.FINAL and ack.first != start]
        missing = [name for name, ack in acks.items() if not ack or ack.step > asked.read_by[self._turn]]
        if out:
            self.give_up("late", msg("capture.cannot_record", f"{', '.join(out)} cannot record with it"), count)
        elif not missing:
            self._start(asked, count)
        elif self._turn + 1 < len(asked.starts):
            self._turn += 1
        else:
            self.give_up(
                "late", msg("capture.did_not_answer_time", f"{', '.join(missing)} did not answer in time"), count
            )

    def _start(self, asked: Request, count: int) -> None:
        self._recording = session.begin(self._wanted(asked), count)
        self._thread = threading.get_ident()
        self.marks.append((count, live.NOTICED if asked.by == "watch" else live.ASKED))
        self.ack = replace(self.ack, first=count)
        self._answer("recording")

    def _wanted(self, asked: Request) -> Options:
        return replace(self._options, steps=asked.count, framework=self._place.framework, **asked.options)

    def _recorded(self, recording: Recording, count: int) -> None:
        self._asked = self._recording = None
        self.marks.append((count, live.OVER))
        if recording.path:
            self.ack = replace(self.ack, file=recording.path.name)
            self._answer("writing")
            self.written.append((recording, self.ack))
        else:
            self._answer("failed", msg("capture.recorded_nothing", "it recorded nothing"))

    def give_up(self, state: str, why: str, count: int) -> None:
        """Answer that the request has failed."""
        recording, self._recording = self._recording, None
        if recording:
            recording.cancel()
            self.marks.append((count, live.OVER))
        if self._asked:
            self._asked = None
            self._answer(state, why)

    def end(self, count: int) -> None:
        """Write the recorded steps and finish the request when the process ends."""
        if self._recording:
            self._recording.stop()
            self._recorded(self._recording, count)
        self.give_up("failed", msg("capture.process_ended", "the process ended"), count)
        for recording, _ in self.written:
            recording.wait()
        self.settle()

    def settle(self) -> None:
        """Answer with the files that are written, and send pending answers; on any thread."""
        if self._unsaid:
            self._say()
        for _ in range(len(self.written)):
            recording, ack = self.written.popleft()
            if recording.wait(0):
                ack = replace(ack, state="done")
            elif recording.is_being_written:
                self.written.append((recording, ack))
                continue
            else:
                ack = replace(
                    ack,
                    state="failed",
                    file="",
                    why=msg("capture.file_not_written_process", "its file was not written; the process said why"),
                )
            if ack.id == self.ack.id:
                self.ack = ack
                self._answer(ack.state, ack.why)

    def _answer(self, state: str, why: str = "") -> None:
        self.ack = replace(self.ack, state=state, why=why[:1000], t_ns=time.time_ns())
        self._say()

    def _say(self) -> None:
        sent = self.ack
        try:
            notes.write(self._place.folder / live.FOLDER / f"ack.{self._place.worker.name}.json", sent)
        except OSError as error:
            if not self._unsaid:
                self._unsaid = True
                warn(f"an answer could not be written, and is again: {error}")
        else:
            self._unsaid = sent is not self.ack
