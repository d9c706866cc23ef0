"""A folder of results as a remote run leaves it: one run, its recordings as workers, nothing else mentioned."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, trace_of
from visualprof.reader.logdir.listing import scan_profiles
from visualprof.reader.trace import Trace
from visualprof.views.distributed import VIEW as DISTRIBUTED

SAMPLE = {"t_ns": 1_795_147_594_000_000_000, "phase": "measuring", "batch": 1, "cpu": 0.5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = tmp_path / "resnet-0001" / "ort"
    result.mkdir(parents=True)
    for name, sample in (
        ("timeline.json", "megengine-train/1890.chrome_timeline.json.gz"),
        ("profile.json", "megengine-inference/transformer_tiny.profile.json.gz"),
    ):
        (result / name).write_bytes(gzip.decompress((SAMPLES / sample).read_bytes()))
    (result / "monitor.jsonl").write_text(json.dumps({"schema": "visualprof.monitor/1"}) + "\n" + json.dumps(SAMPLE))
    (result / "steps").mkdir()
    for name in ("job.json", "env.json", "status.json", "advice.json", "search.json", "case.json", "steps/3.json"):
        (result / name).write_text('{"schema": "visualprof.job/1"}')
    (result / "points.jsonl").write_text('{"batch": 1, "n": 5}\n')
    (result / "log.txt").write_text("{}")
    (result / "latencies.bin").write_bytes(b"{\x00\x00\x00")
    (result / "executed.onnx").write_bytes(b"\x08\x07")
    return tmp_path


def test_all_recordings_belong_to_the_same_run(folder: Path) -> None:
    (run,) = scan_profiles([folder]).runs
    assert run.id == "resnet-0001/ort"
    assert [w.id for w in run.workers] == ["timeline", "profile", "monitor"]


def test_the_first_worker_is_not_a_monitor(folder: Path) -> None:
    (folder / "resnet-0001" / "ort" / "timeline.json").unlink()
    assert scan_profiles([folder]).find("resnet-0001/ort").log_file.name == "profile.json"


def test_nothing_else_of_a_result_is_mentioned(folder: Path) -> None:
    assert scan_profiles([folder]).skipped == ()


@pytest.mark.parametrize("name", ["job.json", "env.json", "status.json", "advice.json", "case.json", "steps/3.json"])
@pytest.mark.parametrize("content", ["", " \n", '{"a', "nonsense"])
def test_damaged_files_of_a_result_are_not_mentioned_either(folder: Path, name: str, content: str) -> None:
    (folder / "resnet-0001" / "ort" / name).write_text(content)
    listing = scan_profiles([folder])
    assert listing.skipped == ()
    assert [w.id for r in listing.runs for w in r.workers] == ["timeline", "profile", "monitor"]


def test_a_profile_named_like_a_result_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(gzip.decompress((SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz").read_bytes()))
    assert [r.id for r in scan_profiles([tmp_path]).runs] == ["job"]


def test_internal_files_of_the_server_are_never_shown(folder: Path) -> None:
    incoming = folder / ".visualprof" / "incoming" / "t1-1"
    incoming.mkdir(parents=True)
    (incoming / "timeline.json").write_bytes((folder / "resnet-0001" / "ort" / "timeline.json").read_bytes())
    assert [r.id for r in scan_profiles([folder]).runs] == ["resnet-0001/ort"]


def test_recordings_of_one_process_are_not_ranks() -> None:
    ranks = [(name, trace_of(SAMPLES / "pytorch-ddp-cpu" / f"{name}.pt.trace.json.gz")) for name in ("rank0", "rank1")]
    idle = trace_of(SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz")
    params = DISTRIBUTED.parse({})

    def workers(recordings: list[tuple[str, Trace]]) -> set[str]:
        answer: Any = DISTRIBUTED.compute_from_traces(recordings, params)
        return set(answer.columns.worker)

    assert workers([*ranks, ("monitor", idle)]) == {"rank0", "rank1"}
    assert workers([("timeline", ranks[0][1]), ("profile", ranks[1][1]), ("monitor", idle)]) == {"timeline"}
