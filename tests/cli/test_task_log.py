"""Useful lines of the log of a failed task."""

from __future__ import annotations

from visualprof.cli._task_log import error_lines

TRACEBACK = ["Traceback (most recent call last):", '  File "run.py", line 3, in <module>', "ValueError: bad shape"]
NOISE = [f"step {i}" for i in range(30)]


def test_the_last_traceback_is_shown_without_the_lines_of_a_clean_up() -> None:
    assert error_lines([*NOISE, *TRACEBACK, *NOISE, "[agent] removed 3 files"]) == TRACEBACK


def test_a_long_traceback_keeps_its_end_which_names_the_error() -> None:
    frames = [f"  {line}" for line in NOISE]
    assert error_lines([TRACEBACK[0], *frames, "RuntimeError: out of memory", "done"], 2) == [
        "  step 29",
        "RuntimeError: out of memory",
    ]


def test_without_a_traceback_the_lines_end_with_the_last_error() -> None:
    assert error_lines(["a", "b", "error: no such device", *NOISE], 2) == ["b", "error: no such device"]
    assert error_lines(NOISE, 2) == ["step 28", "step 29"]
    assert error_lines([]) == []
