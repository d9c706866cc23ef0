"""Files of one run whose names contain no rank are joined by the ranks that they state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_file_index import Server, write
from test_logdir import summary

from visualprof.reader.logdir.listing import Listing, scan_profiles


def stated(rank: int, world_size: int = 2) -> str:
    """Return a trace that states its rank."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 1}
    info = {"backend": "nccl", "rank": rank, "world_size": world_size}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": [event]})


def shown(listing: Listing) -> dict[str, list[tuple[str, int]]]:
    """Return the workers of each run with their ranks."""
    return {run.id: [(worker.id, worker.rank) for worker in run.workers] for run in listing.runs}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, rank in (("oak", 1), ("elm", 0)):
        write(tmp_path / "runs" / "exp" / f"{name}.json", stated(rank))
    return tmp_path / "runs"


def test_the_server_joins_files_like_the_command_line(tmp_path: Path, runs: Path) -> None:
    joined = {"exp": [("elm", 0), ("oak", 1)]}
    assert shown(scan_profiles([runs])) == joined
    assert shown(Server(tmp_path).logdir.listing()) == joined


def test_two_files_of_one_rank_are_runs_of_their_own(tmp_path: Path, runs: Path) -> None:
    write(runs / "exp" / "ash.json", stated(1))
    apart = {"exp/ash": [("ash", 1)], "exp/elm": [("elm", 0)], "exp/oak": [("oak", 1)]}
    assert shown(scan_profiles([runs])) == apart
    assert shown(Server(tmp_path).logdir.listing()) == apart


def test_ranks_of_another_number_of_ranks_are_not_joined(tmp_path: Path, runs: Path) -> None:
    write(runs / "exp" / "ash.json", stated(2, world_size=4))
    assert set(shown(Server(tmp_path).logdir.listing())) == {"exp", "exp/ash"}


def test_runs_follow_files_that_appear_change_and_disappear(tmp_path: Path, runs: Path) -> None:
    (runs / "exp" / "oak.json").unlink()
    server = Server(tmp_path)
    assert shown(server.logdir.listing()) == {"exp/elm": [("elm", 0)]}
    alone = server.logdir.revision
    write(runs / "exp" / "oak.json", stated(1))
    server.logdir.rescan()
    assert shown(server.logdir.listing()) == {"exp": [("elm", 0), ("oak", 1)]}
    assert server.logdir.changes(alone).removed == ("exp/elm",)
    write(runs / "exp" / "oak.json", stated(0) + " ")
    server.logdir.rescan()
    assert set(shown(server.logdir.listing())) == {"exp/elm", "exp/oak"}
    (runs / "exp" / "oak.json").unlink()
    server.logdir.rescan()
    assert shown(server.logdir.listing()) == {"exp/elm": [("elm", 0)]}


def test_a_restarted_server_still_knows_the_ranks(tmp_path: Path, runs: Path) -> None:
    for number in (0, 1):
        write(runs / "numbered" / f"profile_{number}.json", stated(number))
    first = Server(tmp_path)
    for name in ("elm", "oak", "profile_0", "profile_1"):
        first.parser.end(f"{name}.json", summary(name))
    again = shown(Server(tmp_path).logdir.listing())
    assert set(again) == set(shown(first.logdir.listing())) == {"exp", "numbered"}
    assert [worker for worker, _ in again["numbered"]] == ["profile_0", "profile_1"]


def torch_name(words: str, rank: int, stamp: int) -> str:
    """Return a file name of torch's trace handler."""
    return f"{words}_rank{rank}.{1_623_143_089_861 + stamp}.pt.trace.json"


UNSTATED = json.dumps({"schemaVersion": 1, "traceEvents": json.loads(stated(0))["traceEvents"]})


def test_experiments_in_one_folder_are_runs_of_their_own(tmp_path: Path) -> None:
    """Both experiments have a rank 0, so that they cannot be processes of one run."""
    for words, rank, stamp in (("cnn", 0, 1), ("cnn", 1, 2), ("bert", 0, 3), ("bert", 1, 4)):
        write(tmp_path / "runs" / "exp" / torch_name(words, rank, stamp), UNSTATED)
    apart = {f"exp/{words}": [(f"{words}_rank{rank}", rank) for rank in (0, 1)] for words in ("bert", "cnn")}
    assert shown(scan_profiles([tmp_path / "runs"])) == apart
    assert shown(Server(tmp_path).logdir.listing()) == apart


def test_hosts_with_different_ranks_are_one_run_until_a_rank_is_there_twice(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "exp"
    for words, rank, stamp in (("node7", 0, 1), ("node7", 0, 2), ("node8", 1, 1)):
        write(folder / torch_name(words, rank, stamp), UNSTATED)
    server = Server(tmp_path)
    joined = {"exp": [("node7_rank0", 0), ("node8_rank1", 1)]}  # the first has two recordings
    assert shown(server.logdir.listing()) == joined
    write(folder / torch_name("node9", 1, 1), UNSTATED)
    server.logdir.rescan()
    assert set(shown(server.logdir.listing())) == {"exp/node7", "exp/node8", "exp/node9"}
    (folder / torch_name("node9", 1, 1)).unlink()
    server.logdir.rescan()
    assert shown(server.logdir.listing()) == joined
