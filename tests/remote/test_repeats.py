"""Repeated measurements: the order of turns, and the resulting point."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.fake_server import FakeServer
from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.work.device_scheduler import DeviceScheduler
from visualprof.remote.agent.work.repeats import Repeats, merge_points_file, merge_repeats

__all__ = ["server", "start"]


def order(specs: int, stages: int) -> list[int]:
    """Whose turn came when, of specs that all want so many stages and join in their order."""
    relay, turns = DeviceScheduler(), list[int]()
    joined = threading.Barrier(specs)

    def work(index: int) -> None:
        with relay.register("cpu", index) as runner:
            with relay.time_slot("cpu", runner, lambda: None):  # the fetching of files
                pass
            joined.wait(10)
            for _ in range(stages):
                with relay.time_slot("cpu", runner, lambda: None):
                    turns.append(index)
                    time.sleep(random.uniform(0, 0.003))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(specs)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    return turns


def test_specs_take_turns_forwards_and_backwards() -> None:
    assert order(2, 4) == [0, 1, 1, 0, 0, 1, 1, 0]
    assert order(3, 2) == [0, 1, 2, 2, 1, 0]


def test_a_steady_drift_adds_the_same_to_every_spec() -> None:
    turns = order(4, 6)
    means = [fmean(when for when, spec_id in enumerate(turns) if spec_id == spec) for spec in range(4)]
    assert means == [11.5] * 4


def test_one_task_at_a_time_has_the_device_even_if_another_joins() -> None:
    relay, inside, most = DeviceScheduler(), [0], [0]

    def work(index: int) -> None:
        time.sleep(index * 0.01)
        with relay.register("cpu", index) as runner:
            for _ in range(5):
                with relay.time_slot("cpu", runner, lambda: None):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    time.sleep(0.004)
                    inside[0] -= 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert most == [1]


def test_a_leaving_task_is_not_awaited_and_a_waiting_task_can_be_stopped() -> None:
    relay = DeviceScheduler()

    def stop() -> None:
        raise StopRequested

    with relay.register("cpu", 1) as runner:
        with (
            relay.register("cpu", 2) as first,
            relay.time_slot("cpu", first, lambda: None),
            pytest.raises(StopRequested),
            relay.time_slot("cpu", runner, stop),
        ):
            pytest.fail("it is not its turn")
        with relay.time_slot("cpu", runner, lambda: None):
            pass


def test_devices_know_nothing_of_each_other() -> None:
    relay = DeviceScheduler()
    with (
        relay.register("cuda:0", 0) as other,
        relay.register("cpu", 0) as registration,
        relay.time_slot("cuda:0", other, lambda: None),
        relay.time_slot("cpu", registration, lambda: None),
    ):
        pass


def point(batch: int = 1, **fields: Any) -> dict[str, Any]:
    return {"batch": batch, "n": 700, "p50_ns": 100, "p99_ns": 200, "trusted": [50, 99], "stable": True, **fields}


def test_repeats_become_a_point_with_their_means_and_values() -> None:
    a = point(qps=10.0, p50_ns=100, min_ns=90, max_ns=300, start_ns=5, end_ns=9, host_busy=False, window_p50_ns=[1, 2])
    b = point(qps=13.0, p50_ns=103, min_ns=80, max_ns=400, start_ns=20, end_ns=30, host_busy=True, window_p50_ns=[3])
    both = merge_repeats([a, b])
    assert (both["qps"], both["p50_ns"], both["n"]) == (11.5, 102, 1400)  # 101.5, rounded to even
    assert (both["min_ns"], both["max_ns"], both["start_ns"], both["end_ns"]) == (80, 400, 5, 30)
    assert (both["stable"], both["host_busy"], both["window_p50_ns"]) == (True, True, [1, 2, 3])
    assert both["repeats"] == [a, b]
    assert merge_repeats([a]) is a


def test_a_value_unknown_in_a_repeat_is_unknown() -> None:
    both = merge_repeats([point(p99_ns=None, trusted=[50], throttled=None), point(throttled=True, qps="fast")])
    assert (both["p99_ns"], both["trusted"], both["throttled"], both["qps"]) == (None, [50], True, None)
    assert merge_repeats([point(throttled=None), point(throttled=False)])["throttled"] is None


def test_the_steps_of_a_load_are_kept_once() -> None:
    both = merge_repeats([point(load={"steps": [1], "verdict": "PASS"}), point(load={"steps": [2], "verdict": "PASS"})])
    assert both["load"]["steps"] == [2]
    assert [repeat["load"] for repeat in both["repeats"]] == [{"steps": [], "verdict": "PASS"}] * 2


def test_points_of_a_size_come_together_as_they_come() -> None:
    repeats = Repeats()
    answers = [repeats.add(point(batch, qps=qps)) for batch, qps in ((1, 10.0), (4, 20.0), (4, 30.0), (1, 20.0))]
    assert [(answer["batch"], answer["qps"], len(answer.get("repeats", []))) for answer in answers] == [
        (1, 10.0, 0),
        (4, 20.0, 0),
        (4, 25.0, 2),
        (1, 15.0, 2),
    ]


def test_the_file_of_points_gets_a_line_for_each_size(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    lines = [json.dumps(point(batch, qps=float(batch + i))) for i, batch in enumerate((1, 2, 2, 1))]
    file.write_text("\n".join([*lines[:2], "nonsense", *lines[2:]]) + "\n" + '{"batch": 1, "n')
    merge_points_file(file)
    first, two, *rest = file.read_text().split("\n")
    assert [json.loads(line)["qps"] for line in (first, two)] == [(1 + 4) / 2, (3 + 4) / 2]
    assert rest == ["nonsense", '{"batch": 1, "n']


@pytest.mark.slow
def test_a_drifting_machine_favors_no_spec_of_a_repeated_job(
    server: FakeServer, start: StartAgent, tmp_path: Path
) -> None:
    model = f"drift={tmp_path}/count".encode()
    tasks = server.submit_specs(model, "first", "second", repeat=4)
    start()
    for task in tasks:
        assert server.finished(task)["state"] == "succeeded"
    points = [json.loads(task.result["points.jsonl"]) for task in tasks]
    assert [row["p50_ns"] for row in points] == [1035, 1035]  # places 0 3 4 7 and 1 2 5 6, of 10 ns each
    assert [[r["p50_ns"] for r in row["repeats"]] for row in points] == [
        [1000, 1030, 1040, 1070],
        [1010, 1020, 1050, 1060],
    ]
    assert len({repeat["pid"] for row in points for repeat in row["repeats"]}) == 8, "each in a process of its own"
    assert [len(task.points[-1]["repeats"]) for task in tasks] == [4, 4], "told as they come"
