"""Two curves of memory on one axis: the peak of each with the difference, both from the step's start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import raw_keys
from tests.server.sites import stepped

MIB = 2**20


def recording(first: int, totals: list[int]) -> str:
    """Two steps, the first of 100 us; `totals` in MiB are allocated on device 0, 20 us apart from 10 us on."""
    trace = json.loads(stepped(first, [[("a", 4)], [("a", 5)]]))
    before = 0
    for place, total in enumerate(totals):
        fields = {"Device Type": 1, "Device Id": 0, "Addr": 64 + place, "Bytes": (total - before) * MIB}
        fields |= {"Total Allocated": total * MIB, "Total Reserved": 64 * MIB}
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1010 + 20 * place}
        trace["traceEvents"].append(event | {"args": fields})
        before = total
    return json.dumps(trace)


def test_both_curves_share_an_axis(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    totals = {"new": [4, 12, 8, 6, 6, 20, 4], "base": [4, 10, 8, 6, 6, 16, 4]}
    for name, first in (("new", 5), ("base", 6)):
        file = tmp_path / "runs" / name / "trace.json"
        file.parent.mkdir(parents=True)
        file.write_text(recording(first, totals[name]))
    dashboard = serve()
    dashboard.wait_until_ready()
    page = visit(dashboard, "memory", run="new", base="base")
    change = page.locator(".peak-change")
    expect(change).to_have_text("Peak: 20.0 MiB, base 16.0 MiB, +4.00 MiB (+25.0 %)")
    # The first step of each ends before the sixth value.
    page = visit(dashboard, "memory", run="new", base="base", step="5", language="zh", theme="dark")
    expect(page.locator(".peak-change")).to_have_text("峰值：12.0 MiB，基准 10.0 MiB， +2.00 MiB (+20.0 %)")
    assert not raw_keys(page)
