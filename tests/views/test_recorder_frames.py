"""Frames of visualprof's own recorder are not frames of the program."""

from __future__ import annotations

from typing import Any

from tests.conftest import Write, answer


def frame(name: str, start: float, dur: float, thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": thread, "ts": start, "dur": dur}


PROGRAM = [
    frame("train.py(3): <module>", 0, 100),
    frame("train.py(9): step", 10, 50),
    frame("threading.py(1002): _bootstrap", 0, 100, thread=2),  # a thread of the program
    frame("threading.py(982): run", 1, 98, thread=2),
    frame("train.py(20): load", 2, 90, thread=2),
]
RECORDER = [
    frame("/site-packages/visualprof/capture/profile.py(148): step", 70, 20),
    frame("json/__init__.py(183): dumps", 72, 10),
    frame("threading.py(1002): _bootstrap", 0, 100, thread=3),
    frame("threading.py(1045): _bootstrap_inner", 1, 98, thread=3),
    frame("threading.py(982): run", 2, 96, thread=3),
    frame("visualprof/capture/monitor.py(57): _run", 3, 94, thread=3),
    frame("threading.py(629): wait", 4, 90, thread=3),
]


def test_frames_and_threads_of_the_recorder_are_left_out_and_counted(write: Write) -> None:
    flame = answer("flame", write([*PROGRAM, *RECORDER]), tree="python")
    assert flame["recorder_calls"] == len(RECORDER)
    without = answer("flame", write(PROGRAM, "program.json"), tree="python")
    assert without["recorder_calls"] == 0
    names = ("name", "calls", "depth")
    assert {name: flame["columns"][name] for name in names} == {name: without["columns"][name] for name in names}
    assert flame["columns"]["name"][0] == "train.py(3): <module>"


def test_a_program_in_a_folder_of_that_name_is_not_the_recorder(write: Write) -> None:
    flame = answer("flame", write([frame("work/visualprof/train.py(1): main", 0, 10)]), tree="python")
    assert (flame["recorder_calls"], flame["columns"]["name"]) == (0, ["work/visualprof/train.py(1): main"])
