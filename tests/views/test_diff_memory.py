"""Memory of two runs compared: what operators allocate in a step, and what one of the two did not record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import SAMPLES, Write, answer
from tests.views.test_diff import diffed
from tests.views.test_memory import memory_event
from tests.views.test_steps import Event, host, step


def run(sizes: list[dict[str, int]], before: int = 0) -> list[Event]:
    """Steps of 100 us; in each every operator allocates so many bytes, and releases half of them in its next 10 us.

    before: bytes that the first operator allocates before the first step.
    """
    events: list[Event] = []
    if before:
        events += [host("cpu_op", "aten::mm", 1, 5), memory_event(2, before, 1)]
    for number, of in enumerate(sizes):
        at = 100 + 100 * number
        events.append(step(number, at, 100))
        for place, (name, size) in enumerate(of.items()):
            ts, address = at + 20 * place, 1000 * number + 10 * place + 10
            events += [host("cpu_op", name, ts, 15), memory_event(ts + 1, size, address)]
            events.append(memory_event(ts + 11, -size, address))
    return events


def sizes(base: Path, new: Path, what: str, **params: str) -> dict[str, tuple[Any, ...]]:
    columns = diffed(base, new, "memory", **params)["memory"]["columns"]
    wanted = (columns[name] for name in ("base_bytes", "new_bytes", "delta_bytes", "status"))
    rows = zip(columns["name"], columns["what"], *wanted, strict=True)
    return {name: tuple(rest) for name, kind, *rest in rows if kind == what}


def test_allocations_of_an_operator_are_per_mean_step(write: Write) -> None:
    # aten::mm: (100 + 300) / 2 = 200 then (400 + 400 + 400) / 3; what it allocates before the steps does not count
    base = write(run([{"aten::mm": 100, "aten::add": 64}, {"aten::mm": 300, "aten::add": 64}], before=5000), "a.json")
    new = write(run([{"aten::mm": 400, "aten::add": 64, "aten::cat": 30}] * 3), "b.json")
    assert sizes(base, new, "allocated") == {
        "aten::mm": (200, 400, 200, "changed"),
        "aten::cat": (0, 30, 30, "added"),
        "aten::add": (64, 64, 0, "same"),
    }
    assert sizes(base, new, "allocated", step="1")["aten::mm"] == (300, 400, 100, "changed")


def test_allocations_of_steps_equal_those_of_the_memory_view(write: Write) -> None:
    path = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    same = sizes(path, path, "allocated", step="4")
    view = answer("memory", path, device="0", step="4")["operators"]["columns"]
    expected = dict(zip(view["name"], view["self_allocated_bytes"], strict=True))
    assert {name: row[0] for name, row in same.items()} == {name: size for name, size in expected.items() if size}
    assert {row[2:] for row in same.values()} == {(0, "same")}


def test_not_recorded_is_not_nothing(write: Write) -> None:
    base = write(run([{"aten::mm": 100}] * 2), "a.json")
    new = write([event for event in run([{"aten::mm": 100}] * 2) if event["name"] != "[memory]"], "b.json")
    assert sizes(base, new, "allocated") == {"aten::mm": (100, None, None, None)}
    assert sizes(new, base, "allocated") == {"aten::mm": (None, 100, None, None)}


def on_devices(events: list[Event], *devices: int) -> list[Event]:
    """The same memory on each of these devices."""
    memory = [event for event in events if event["name"] == "[memory]"]
    others = [event for event in events if event["name"] != "[memory]"]
    moved = [{**event, "args": {**event["args"], "Device Id": device}} for device in devices for event in memory]
    return [*others, *moved]


def peaks(base: Path, new: Path) -> dict[str, tuple[int, int | None, int | None]]:
    columns = diffed(base, new, "memory")["memory"]["columns"]
    rows = zip(*(columns[name] for name in ("name", "what", "device", "base_bytes", "new_bytes")), strict=True)
    return {name: (device, before, after) for name, what, device, before, after in rows if what == "peak_allocated"}


def test_the_only_devices_of_two_runs_are_compared(write: Write) -> None:
    base = write(on_devices(run([{"aten::mm": 100}] * 2), 0), "a.json")
    new = write(on_devices(run([{"aten::mm": 130}] * 2), 3), "b.json")
    assert peaks(base, new) == {"device 0 -> device 3": (3, 100, 130)}
    assert sizes(base, new, "allocated") == {"aten::mm": (100, 130, 30, "changed")}
    assert peaks(new, base) == {"device 3 -> device 0": (0, 130, 100)}


def test_several_devices_are_matched_by_number(write: Write) -> None:
    base = write(on_devices(run([{"aten::mm": 100}] * 2), 0), "a.json")
    new = write(on_devices(run([{"aten::mm": 130}] * 2), 1, 2), "b.json")
    assert peaks(base, new) == {"device 0": (0, 100, None), "device 1": (1, None, 130), "device 2": (2, None, 130)}
    both = write(on_devices(run([{"aten::mm": 70}] * 2), 0, 1), "c.json")
    assert peaks(base, both) == {"device 0": (0, 100, 70), "device 1": (1, None, 70)}


def test_the_host_is_not_compared_with_a_device(write: Write) -> None:
    host_memory = run([{"aten::mm": 100}] * 2)
    for event in host_memory:
        if event["name"] == "[memory]":
            event["args"] |= {"Device Type": 0, "Device Id": -1}
    base = write(host_memory, "a.json")
    new = write(on_devices(run([{"aten::mm": 130}] * 2), 1), "b.json")
    found = peaks(base, new)
    assert found.pop("device 1") == (1, None, 130)
    assert list(found.values()) == [(-1, 100, None)]
