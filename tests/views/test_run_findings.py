"""Findings of a rank together with what the other ranks show: transfer, waiting, and stragglers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, Write, answer, json_of, trace_of
from tests.recordings import recording_path
from tests.views.rank_events import event, step
from visualprof.cli import main
from visualprof.views import view
from visualprof.views.measure.ranks.rank_summary import rank_summary
from visualprof.views.measure.ranks.run_analysis import analyze_run

COMMUNICATION = {"communication_bound", "waiting_for_ranks", "straggler"}


def joined(worker: Path, *paths: Path) -> dict[str, dict[str, Any]]:
    """Return the findings of one of several ranks about communication, by id."""
    chosen = view("findings")
    assert chosen.join
    run = analyze_run([(path.name, rank_summary(trace_of(path))) for path in paths])
    result = json_of(chosen.join(chosen.compute(trace_of(worker), chosen.parse({})), run, worker.name, list))
    return {finding["id"]: finding for finding in result["findings"] if finding["id"] in COMMUNICATION}


def recorded(write: Write, sleeps: int, computes: int, reduces_at: int, name: str) -> Path:
    """Return a rank that sleeps, computes, and reduces until 90 us in three steps of 92 us."""
    events = [
        each
        for i in range(3)
        for each in (
            step(i, 100 * i, 92),
            event("aten::mm", 100 * i + sleeps, computes),
            event("gloo:all_reduce", 100 * i + reduces_at, 90 - reduces_at, tid=2),
        )
    ]
    return write(events, name=name)


def test_exposed_communication_is_split_and_the_late_rank_named(write: Write) -> None:
    """Rank 0 reduces from 11 us on, rank 1 from 33: the transfer takes 57 us, and rank 0 waits for 22, for rank 1."""
    early, late = recorded(write, 1, 10, 11, "rank0.json"), recorded(write, 21, 12, 33, "rank1.json")
    findings = joined(early, early, late)
    assert {name: found["most_ns_per_step"] for name, found in findings.items()} == {
        "communication_bound": 57_000,
        "straggler": 22_000,
    }
    assert findings["straggler"]["evidence"] == {
        "rank": 1,
        "late_excess_ns": 22_000,
        "steps_late": 3,
        "steps": 3,
        "wait_ns": 22_000,
        "wait_ratio": pytest.approx(22 / 92),
    }
    assert findings["straggler"]["severity"] == "high"  # 22 of 92 us
    # A replay of one rank would hide the waiting too, so nothing of it is left.
    assert {(found["gain_ns_per_step"], found["change"]) for found in findings.values()} == {(None, "")}
    behind = joined(late, early, late)
    assert set(behind) == {"communication_bound", "straggler"}
    assert "wait_ns" not in behind["straggler"]["evidence"]  # the late rank does not wait


def test_a_late_rank_comes_before_its_symptoms_and_every_rank_predicts_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The host of rank 0 waits for a device that waits for rank 2, whose excess of 2.7465 ms no other rank can save."""
    folder = str(SAMPLES / "synthetic-4gpu")
    step_ns, planned_ns = {}, {}
    for rank in ("rank0", "rank2"):
        assert main(["view", "findings", folder, "--worker", rank, "--format", "json"]) == 0
        findings = json.loads(capsys.readouterr().out)
        assert [finding["id"] for finding in findings["findings"]][:2] == ["straggler", "hidden_sync"]
        assert "waiting_for_ranks" not in {finding["id"] for finding in findings["findings"]}
        step_ns[rank] = findings["together"]["predicted_ns"]
        assert main(["view", "plan", folder, "--worker", rank, "--format", "json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        columns = plan["rungs"]["columns"]
        assert main(["view", "ranks", folder, "--format", "json"]) == 0
        changes = json.loads(capsys.readouterr().out)["changes"]["columns"]
        gain = dict(zip(changes["change"], changes["gain_ns"], strict=True))["rank[2]=median"]
        assert findings["findings"][0]["gain_ns_per_step"] == round(gain)
        first = [columns[name][0] for name in ("lever", "subject", "change", "gain_ns", "most_ns")]
        assert first == ["balanced_ranks", "rank 2", "rank[2]=median", round(gain), None]
        assert plan["planned_ns"] == [ns for ns in columns["step_ns"] if ns is not None][-1]
        planned_ns[rank] = plan["planned_ns"]
    assert step_ns["rank0"] == pytest.approx(step_ns["rank2"], rel=0.001)
    assert planned_ns["rank0"] == pytest.approx(planned_ns["rank2"], rel=0.001)


def test_computation_covers_the_beginning_of_a_collective(write: Write) -> None:
    """Rank 0 computes until 31 us: of 59 us exposed, 57 are the transfer."""
    early, late = recorded(write, 1, 30, 11, "rank0.json"), recorded(write, 21, 12, 33, "rank1.json")
    run = analyze_run([(path.name, rank_summary(trace_of(path))) for path in (early, late)])
    waits = run.exposed_wait[0]
    assert waits is not None
    assert waits.tolist() == [2_000] * 3
    assert "waiting_for_ranks" not in joined(early, early, late)  # under 5 % of the step


def test_one_rank_alone_keeps_its_finding(write: Write) -> None:
    alone = recorded(write, 1, 10, 11, "rank0.json")
    assert set(joined(alone, alone)) == {"communication_bound"}


def test_all_changes_together_leave_collectives_of_several_ranks_out() -> None:
    path = SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz"
    together = answer("findings", path)["together"]
    assert "collective" not in together["change"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["rank0", "rank3"])
def test_the_late_rank_of_four_is_the_first_finding_of_all(rank: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0 of the four processes is late in 2 of 3 steps, as on the page Distributed."""
    folder = recording_path("traces/torch_cpu/ddp4/rank0.pt.trace.json.gz").parent
    assert main(["view", "findings", str(folder), "--worker", rank, "--format", "json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert findings[0]["id"] == "straggler"
    assert findings[0]["evidence"]["rank"] == 0
    by_id = {finding["id"]: finding for finding in findings}
    exposed, transfer = (by_id["communication_bound"]["evidence"][key] for key in ("communication_ns", "transfer_ns"))
    assert by_id["communication_bound"]["most_ns_per_step"] == transfer < 0.7 * exposed
    assert main(["view", "distributed", str(folder), "--format", "json"]) == 0
    stragglers = json.loads(capsys.readouterr().out)["stragglers"]
    assert [late["rank"] for late in stragglers] == [0]
    assert stragglers[0]["late_excess_ns"] == findings[0]["evidence"]["late_excess_ns"]
    # Rank 3 is late in turn, so that rank 0 alone gains little: the what-if of all ranks says the same.
    assert main(["view", "ranks", str(folder), "--format", "json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]["columns"]
    gains = dict(zip(changes["change"], map(round, changes["gain_ns"]), strict=True))
    assert (findings[0]["gain_ns_per_step"], findings[0]["change"]) == (gains["rank[0]=median"], "rank[0]=median")
    assert findings[0]["evidence"]["balanced_ns"] == gains["rank[*]=median"]
    assert gains["rank[0]=median"] < 0.1 * gains["rank[*]=median"]
    assert main(["view", "plan", str(folder), "--worker", rank, "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["rungs"]["columns"]
    first = [plan[name][0] for name in ("subject", "change", "gain_ns", "most_ns")]
    assert first == ["all ranks", "rank[*]=median", gains["rank[*]=median"], None]
    transfers = dict(zip(plan["finding"], plan["most_ns"], strict=True))
    assert transfers["communication_bound"] == by_id["communication_bound"]["most_ns_per_step"]


def test_the_plan_counts_the_transfer_only(capsys: pytest.CaptureFixture[str]) -> None:
    folder = recording_path("traces/torch_cpu/ddp4/rank0.pt.trace.json.gz").parent
    assert main(["view", "plan", str(folder), "--worker", "rank0", "--format", "json"]) == 0
    columns = json.loads(capsys.readouterr().out)["rungs"]["columns"]
    (most,) = [
        most for lever, most in zip(columns["lever"], columns["most_ns"], strict=True) if "communication" in lever
    ]
    alone = answer("plan", folder / "rank0.pt.trace.json.gz")["rungs"]["columns"]
    (whole,) = [most for lever, most in zip(alone["lever"], alone["most_ns"], strict=True) if "communication" in lever]
    assert 0.4 * whole < most < 0.7 * whole
