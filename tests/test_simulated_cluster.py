"""A simulated cluster: its files, its times worked out by hand, and the faults in it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster.cases import Case
from benchmarks.cluster.faults import parse
from benchmarks.cluster.finding import Finding
from benchmarks.cluster.job import make, write
from benchmarks.cluster.proof import Score, Tried, score, table, tried
from benchmarks.cluster.simulation import Noise
from benchmarks.cluster.topology import Topology

QUIET = Noise(kernels=0, hosts=0, transfers=0, spread=0, offset_us=0)
TWO_HOSTS = Topology(16, tensor=2, pipeline=2)  # a stage a host, four copies
SMALL = (2, 500, 0)


def written(
    folder: Path, topology: Topology, *faults: str, seed: int = 1, noise: Noise = QUIET
) -> list[dict[str, Any]]:
    """The documents of all ranks, in order."""
    job, truth = make(topology, SMALL, faults, seed, noise)
    write(job, truth, folder)
    documents = [json.loads(path.read_bytes()) for path in folder.iterdir()]
    return sorted(documents, key=lambda document: document["distributedInfo"]["rank"])


def kernels(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Kernels that communicate."""
    return [e for e in document["traceEvents"] if e.get("cat") == "kernel" and "Seq" in e["args"]]


def test_a_seed_makes_the_same_files_again(tmp_path: Path) -> None:
    first, same, other = (
        written(tmp_path / name, Topology(2), seed=seed, noise=Noise()) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == same
    assert first != other


def test_a_collective_ends_after_the_last_arrival_and_the_transfer(tmp_path: Path) -> None:
    members = defaultdict[tuple[str, int], list[dict[str, Any]]](list)
    for document in written(tmp_path / "job", TWO_HOSTS, "straggler:5:1.5"):
        for event in kernels(document):
            if "Src Rank" not in event["args"] and "Dst Rank" not in event["args"]:
                members[event["args"]["Process Group Name"], event["args"]["Seq"]].append(event)
    values_by_name = {
        # Microseconds: hops and, over the slowest link, the part of 2 bytes times so many elements.
        "TENSOR_MODEL_PARALLEL_GROUP": 4 + (4 << 20) * 2 / 300e3,
        "default_pg": 12 * 4 + 2 * 15 / 16 * 2 / 40e3,
        "DATA_PARALLEL_GROUP": 4 * 2 + 3 / 4 * (8 << 20) * 2 / 300e3,
    }
    seen = set[str]()
    for group in members.values():
        name = group[0]["args"]["Process Group Description"]
        assert len(group) == group[0]["args"]["Group size"]
        last = max(event["ts"] for event in group) + values_by_name[name]
        ends = [event["ts"] + event["dur"] for event in group]
        assert all(-0.01 <= end - last <= 1.01 for end in ends), (name, last, ends)
        seen.add(name)
    assert seen == {*values_by_name}


def test_a_message_has_two_sides_that_end_together(tmp_path: Path) -> None:
    sides = defaultdict[tuple[str, int, int], list[dict[str, Any]]](list)
    for rank, document in enumerate(written(tmp_path / "job", TWO_HOSTS)):
        for event in sorted(kernels(document), key=lambda event: event["args"]["Seq"]):
            args = event["args"]
            if "Dst Rank" in args:
                sides["send", rank, args["Dst Rank"]].append(event)
            elif "Src Rank" in args:
                sides["recv", args["Src Rank"], rank].append(event)
            if args["Collective name"] in ("send", "recv"):
                assert args["Rank"] == (1 if rank < 8 else 0)  # the other side's place
    sent = [(key, events) for key, events in sides.items() if key[0] == "send"]
    assert len(sent) == 16  # eight pairs, both ways
    for (_, source, target), events in sent:
        got = sides["recv", source, target]
        assert abs(source - target) == 8
        assert len(events) == len(got) == 2 * 4  # steps, microbatches
        for a, b in zip(events, got, strict=True):
            end = max(a["ts"], b["ts"]) + 12 + (4 << 20) * 2 / 40e3
            assert [a["ts"] + a["dur"], b["ts"] + b["dur"]] == pytest.approx([end, end], abs=0.01)


def test_groups_are_described_like_torch_describes_them(tmp_path: Path) -> None:
    documents = written(tmp_path / "job", Topology(32, tensor=2))
    info = documents[3]["distributedInfo"]
    assert [(group["pg_desc"], group["pg_size"]) for group in info["pg_config"]] == [
        ("default_pg", 32),
        ("TENSOR_MODEL_PARALLEL_GROUP", 2),
        ("DATA_PARALLEL_GROUP", 16),
    ]
    assert info["pg_config"][1]["ranks"] == [2, 3]
    world = next(e["args"] for e in kernels(documents[3]) if e["args"]["Group size"] == 32)
    assert world["Process Group Ranks"] == f"[{', '.join(map(str, range(29)))}, ..., 31]"
    assert sorted(path.name[:13] for path in (tmp_path / "job").iterdir())[8] == "node001_41000"


def test_the_truth_contains_the_cost_of_a_fault() -> None:
    job, truth = make(Topology(4), (4, 800, 1), ["loader:2:5"], 1, QUIET)
    injected = truth["faults"][0]
    assert injected["ranks"] == (2,)
    assert injected["cost"] * (job.step_us - 5000) == pytest.approx(5000, rel=1e-3)  # all wait for it
    some = make(Topology(4), (4, 800, 1), ["loader:2:5@0.5"], 1, QUIET)[1]["faults"][0]
    assert len(some["steps"]) == 2
    assert some["cost"] == pytest.approx(injected["cost"] / 2, rel=0.02)


@pytest.mark.parametrize("text", ["straggler", "straggler:1", "rank:1:2", "link:1:0.5", "node:1-2:3", "node:1:2@1.5"])
def test_invalid_faults_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is no fault"):
        parse(text, 4, 1)


def test_faults_name_the_ranks_that_they_slow_down() -> None:
    slowed = {
        text: parse(text, 4, 1).ranks(TWO_HOSTS) for text in ("node:1:2", "work:4:2", "stage:0:2", "link:0-1:0.5")
    }
    assert slowed == {
        "node:1:2": tuple(range(8, 16)),
        "work:4:2": (4, 5, 12, 13),
        "stage:0:2": tuple(range(8)),
        "link:0-1:0.5": (),
    }


@pytest.mark.slow
def test_an_injected_straggler_is_found_and_a_healthy_cluster_has_no_straggler() -> None:
    found = tried(Case("slow device", 1, TWO_HOSTS, ("straggler:5:1.25",)))
    assert found.ours == Score(1, 1, 1, 1, 1), found.findings
    assert tried(Case("healthy", 1, TWO_HOSTS)).findings == []


def test_scores_count_causes_and_named_ranks() -> None:
    truth = {
        "faults": [
            {"kind": "straggler", "ranks": [5], "hosts": [0], "alone": 0.1},
            {"kind": "nic", "ranks": [], "hosts": [1], "alone": 0.2},
            {"kind": "host", "ranks": [7], "hosts": [0], "alone": 0.001},  # need not be found
        ]
    }
    named = [Finding("rank", (5,), (), "host"), Finding("rank", (6,), (), ""), Finding("host", (), (1,), "link")]
    assert score(truth, named) == Score(injected=2, found=2, exact=1, named=3, right=2)
    rows = list(table([Tried(Case("both", 1, TWO_HOSTS), [0.1, 0.2], named, score(truth, named), None, False)]))
    assert rows[2] == "| both | 1 | 30% | 2 of 2 (100%) | 1 of 2 (50%) | 2 of 3 (67%) |  |  |"
