"""What the two sides of a comparison may be: steps of other names, and reports of an evaluation."""

from __future__ import annotations

import json
from typing import Any

from sites import MakeSite, Site

from tests.results import write_result


def steps(first: int, *durations_us: int) -> str:
    """Steps of these lengths, filled by one operator."""
    events: list[dict[str, Any]] = []
    ts = 100
    for i, dur in enumerate(durations_us):
        for cat, name in (("user_annotation", f"ProfilerStep#{first + i}"), ("cpu_op", "op")):
            events.append({"ph": "X", "pid": 1, "tid": 1, "cat": cat, "name": name, "ts": ts, "dur": dur})
        ts += dur
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def diff(site: Site, status: int = 200, **query: str) -> dict[str, Any]:
    answer = site.client.get("/api/v1/diff", query_string=query)
    assert answer.status_code == status, answer.text
    return answer.get_json()


def test_a_step_is_compared_with_a_step_of_another_name(make_site: MakeSite) -> None:
    site = make_site()
    site.write("old/trace.json", steps(5, 100, 200))
    site.write("new/trace.json", steps(15, 100, 250))
    step = diff(site, run="new", base="old", step="16", base_step="6")["step"]
    assert (step["base_ns"], step["new_ns"], step["significant"]) == (200_000, 250_000, None)
    assert diff(site, run="new", base="old", step="16")["step"] == step, "of the same place, when nothing is said"
    assert "99" in diff(site, 400, run="new", base="old", step="99")["error"]


def test_reports_are_compared_size_by_size(make_site: MakeSite) -> None:
    site = make_site()
    for name, ns in (("old", 100_000), ("new", 120_000)):
        write_result(site.folder / name, {1: [ns] * 1000, 2: [2 * ns] * 1000})
    site.logdir.rescan()
    site.logdir.rescan()
    columns = diff(site, view="evaluation", run="new", base="old", table="evaluation")["columns"]
    places = zip(columns["batch"], columns["figure"], strict=True)
    values_by_name = dict(zip(places, columns["delta_ratio"], strict=True))
    assert round(values_by_name[1, "p50"], 6) == round(values_by_name[2, "mean"], 6) == 0.2
    assert round(values_by_name[2, "samples_per_s"], 6) == round(1 / 1.2 - 1, 6)
    assert diff(site, 404, view="evaluation", run="new", base="elsewhere")["error"]


def test_load_generators_are_compared_load_by_load(make_site: MakeSite) -> None:
    site = make_site()
    for name, tokens in (("old", 200.0), ("new", 250.0)):
        run = {"backend": "vllm", "model_id": "m", "request_throughput": 2.0, "output_throughput": tokens}
        site.write(f"{name}/r.json", json.dumps(run | {"max_concurrency": 8}))
    site.logdir.rescan()
    site.logdir.rescan()
    run, base = (f"{name}/vLLM bench · vllm m" for name in ("new", "old"))
    columns = diff(site, view="evaluation", run=run, base=base, table="evaluation")["columns"]
    assert columns["figure"] == ["achieved_per_s", "output_tokens_per_s"]
    assert (columns["concurrency"], columns["delta_ratio"], "batch" in columns) == ([8, 8], [0.0, 0.25], False)
