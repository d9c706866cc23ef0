"""Changes in the log directories since a revision."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

from visualprof.reader.logdir.listing import Changes, Run, RunIndex, Span, new_span
from visualprof.reader.logdir.scan import LogFile, Problem, Root, Version

ROOT = Root(Path("/logs"), "")


def span(folder: str, name: str, modified_ns: int = 1) -> Span:
    file = f"{folder}/{name}"
    return new_span(
        LogFile(
            path=f"/logs/{file}", file=file, root=ROOT, folder=folder, name=name, version=Version(1, modified_ns, 1)
        )
    )


def rank(run: int, worker: int = 0, modified_ns: int = 1) -> Span:
    return span(f"run{run}", f"rank{worker}.json", modified_ns)


def ids(changes: Changes) -> list[str]:
    return [run.id for run in changes.runs]


def test_a_change_reports_only_its_run() -> None:
    runs = RunIndex()
    for i in range(5):
        runs.set_span(rank(i))
    before = runs.listing()
    runs.set_span(rank(3, 1))
    changes = runs.changes(before.revision)
    assert (changes.since, ids(changes), changes.removed, changes.skipped) == (before.revision, ["run3"], (), None)
    assert [worker.id for worker in changes.runs[0].workers] == ["rank0", "rank1"]
    same = [a is b for a, b in zip(before.runs, runs.listing().runs, strict=True)]
    assert same == [True, True, True, False, True]


def test_a_run_goes_with_its_last_file() -> None:
    runs = RunIndex()
    runs.set_span(rank(1, 0))
    runs.set_span(rank(1, 1))
    start = runs.revision
    runs.drop(rank(1, 0))
    middle = runs.revision
    assert [len(run.workers) for run in runs.changes(start).runs] == [1]
    runs.drop(rank(1, 1))
    assert (ids(runs.changes(middle)), runs.changes(middle).removed) == ([], ("run1",))
    runs.set_span(rank(1, 0))
    assert (ids(runs.changes(middle)), runs.changes(middle).removed) == (["run1"], ())


def test_an_unknown_revision_gives_all_runs() -> None:
    earlier = RunIndex()
    earlier.set_span(rank(0))
    time.sleep(0.001)
    runs = RunIndex()
    runs.set_span(rank(1))
    for since in (None, 0, earlier.revision, runs.revision + 1):
        changes = runs.changes(since)
        assert (changes.since, ids(changes), changes.skipped) == (None, ["run1"], ())


def test_skipped_files_are_reported_when_they_change() -> None:
    runs = RunIndex()
    problem = Problem("notes.json", "no profile", "")
    start = runs.revision
    runs.set_problem("notes.json", problem)
    assert runs.changes(start).skipped == (problem,)
    revision = runs.revision
    runs.set_problem("notes.json", problem)
    assert runs.revision == revision
    assert runs.changes(revision).skipped is None
    runs.set_problem("notes.json", None)
    assert runs.changes(revision).skipped == ()


def test_runs_that_come_and_go_for_ever_are_forgotten() -> None:
    runs = RunIndex()
    runs.set_span(rank(0))
    start = runs.revision
    for i in range(1, 5000):
        runs.set_span(rank(i))
        runs.drop(rank(i))
    assert len(runs.changes(runs.revision - 1).removed) <= 1
    everything = runs.changes(start)
    assert (everything.since, ids(everything)) == (None, ["run0"])


def test_changes_add_up_to_the_listing() -> None:
    """A thousand random changes, reported incrementally, equal the complete listing."""
    rng = random.Random(7)
    runs, shown = RunIndex(), dict[str, Run]()
    spans: dict[str, Span] = {}
    since: int | None = None
    for at in range(1000):
        new = rank(rng.randrange(12), rng.randrange(3), at)
        old = spans.pop(new.log_file.file, None)
        if old and rng.random() < 0.5:
            runs.drop(old)
        else:
            runs.set_span(new)
            spans[new.log_file.file] = new
        if rng.random() < 0.2:
            changes = runs.changes(since)
            shown.update({run.id: run for run in changes.runs})
            for gone in changes.removed:
                shown.pop(gone, None)
            since = changes.revision
            assert [shown[run.id] for run in runs.listing().runs] == list(runs.listing().runs)
            assert len(shown) == len(runs.listing().runs)
            assert [run.id for run in runs.listing().runs] == sorted(shown, key=lambda run: int(run[3:]))


def test_the_time_of_a_change_does_not_grow_with_the_runs() -> None:
    """Each of 500 changes is asked for: of ten times as many runs in less than three times the time."""

    def seconds(count: int) -> float:
        runs = RunIndex()
        for i in range(count):
            runs.set_span(rank(i))
        since, best = runs.listing().revision, math.inf
        for attempt in range(3):
            start = time.process_time()
            for i in range(500):
                runs.set_span(rank(i % 50, 0, 500 * attempt + i))
                since = runs.changes(since).revision
            best = min(best, time.process_time() - start)
        return best

    assert seconds(10_000) < 3 * seconds(1000)
