"""Ask the processes of a run to record steps, and agree on their first step."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from visualprof.capture.live import (
    BEAT_NS,
    FOLDER,
    POLL_NS,
    REQUEST,
    SILENT_NS,
    STARTS,
    Heartbeat,
    RecordingOptions,
    Request,
    beats,
    health,
    is_over,
    request,
)
from visualprof.capture.notes import age_ns, write
from visualprof.capture.options import CaptureBusy, CaptureError
from visualprof.messages import msg


def ask(run: Path, wish: RecordingOptions, by: str, asker: str = "") -> Request:
    """Request a recording from the processes of a run.

    Args:
        run: `<logdir>/<run>`.
        by: page, command, signal or watch.
        asker: Worker that asks; without ranks, it asks only itself.

    Raises:
        CaptureBusy: An earlier request is not finished.
        CaptureError: No process of the run is alive or can record, or no step has ended yet.
    """
    now_ns = time.time_ns()
    alive = [beat for beat in beats(run) if health(beat, now_ns)[0] not in ("ended", "silent")]
    if not alive:
        raise CaptureError(
            msg("capture.no_process_run_listens", "the processes of this run no longer listen for requests"),
            msg("capture.call_capture_listen_where", "call capture.listen(...) where you train"),
        )
    able = [beat for beat in alive if not beat.problem]
    if not able:
        raise CaptureError(msg("capture.nothing_can_recorded", f"nothing can be recorded: {alive[0].problem}"))
    with _alone(run):
        last = request(run)
        if last and not is_over(run, last, now_ns):
            raise CaptureBusy(
                msg(
                    "capture.steps_being_recorded_asked",
                    f"{last.count} steps are being recorded, asked for by {last.by}",
                ),
                msg("capture.wait_them", "wait for them"),
            )
        ranked = [beat for beat in able if beat.world_size > 1]
        able = ranked or [beat for beat in able if asker in ("", beat.worker)]
        starts, read_by = agreed(able, wish.first) if ranked or wish.first else ([], [])
        wait_ns = 60 * 10**9
        if starts:
            latest = max(beat.step for beat in able)
            wait_ns += 2 * (starts[-1] - latest) * max(beat.step_ns or 0 for beat in able)
        names = [beat.worker for beat in able]
        asked = Request(
            id=secrets.token_hex(8),
            by=by,
            count=wish.count,
            options=wish.options,
            workers=names,
            starts=starts,
            read_by=read_by,
            t_ns=now_ns,
            expires_ns=now_ns + wait_ns,
        )
        write(run / FOLDER / REQUEST, asked)
    return asked


def agreed(workers: Sequence[Heartbeat], first: int = 0) -> tuple[list[int], list[int]]:
    """Return first steps at which workers may start, and the step by which each must have read the request.

    Each further start is four times as far away as the one before; a quarter of the distance is for the answers.

    Raises:
        CaptureError: No step has ended yet.
    """
    fastest = min((beat.fastest_ns for beat in workers if beat.fastest_ns), default=0)
    if not fastest:
        raise CaptureError(
            msg(
                "capture.first_steps_not_ended", "the first steps have not ended yet, so that no step can be agreed on"
            ),
            msg("capture.ask_again_later", "ask again later"),
        )
    steps = margin(fastest)
    begin = max(first, max(beat.step for beat in workers) + steps)
    starts = [begin + steps * (4**turn - 1) for turn in range(STARTS)]
    return starts, [start - max(1, steps * 4**turn // 4) for turn, start in enumerate(starts)]


def renew_starts(asked: Request, heartbeats: Sequence[Heartbeat]) -> Request:
    """Return an unread request with new first steps for workers that read it only now."""
    workers = [beat for beat in heartbeats if beat.worker in asked.workers]
    if not asked.starts or not any(beat.fastest_ns for beat in workers):
        return asked
    starts, read_by = agreed(workers)
    return dataclasses.replace(asked, starts=starts, read_by=read_by)


def margin(fastest_ns: int) -> int:
    """Return the number of steps from a heartbeat to the earliest start that can be agreed on.

    Two steps, plus those within the age of a heartbeat and the time between two polls.
    """
    return 2 - (-(BEAT_NS + POLL_NS) // fastest_ns)


@contextlib.contextmanager
def _alone(run: Path) -> Generator[None]:
    """Let one process ask at a time. The lock of a process that died expires after ten seconds."""
    lock = run / FOLDER / ".asking"
    with contextlib.suppress(OSError):
        if lock.exists() and age_ns(lock) > SILENT_NS:
            lock.unlink()
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        raise CaptureBusy(
            msg("capture.somebody_else_asking_just", "another request is in progress"),
            msg("capture.wait_what_they_ask", "wait until that request is finished"),
        ) from None
    except OSError as error:
        raise CaptureError(
            msg("capture.nothing_can_asked", f"nothing can be asked in {lock.parent}: {error.strerror or error}")
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()
