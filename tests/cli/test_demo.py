"""The demo without any runtime: sample runs, and the job of the sample evaluation."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, trace_of
from visualprof.cli.demo import lay_out
from visualprof.reader.logdir.scan import roots
from visualprof.reader.models import read_model
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store.records import Job
from visualprof.views.measure.graphs.node_times import measured
from visualprof.views.trend.figures import VIEW as FIGURES

SMALL = 4 << 20  # all samples together: they are in the wheel
TOLD_NOTHING = (b"/root", b"/tmp/", b"/work", b"/usr/")


@pytest.fixture
def laid_out(tmp_path: Path) -> tuple[Path, Path]:
    return lay_out(tmp_path)


@pytest.fixture
def queue(laid_out: tuple[Path, Path]) -> Iterator[JobServices]:
    runs, jobs = laid_out
    remote = JobService(roots([runs])[0], QueueSettings(data=jobs))
    yield remote.open()
    remote.close()


@pytest.fixture
def job(queue: JobServices) -> Job:
    return queue.jobs.get("sample")


@pytest.mark.slow
def test_the_job_of_the_sample_is_marked_and_has_every_point_of_its_folders(
    laid_out: tuple[Path, Path], queue: JobServices, job: Job
) -> None:
    assert (job.state, job.request.sample) == ("succeeded", True)
    points = queue.jobs.points(job)
    for task in job.tasks:
        folder = laid_out[0] / str(task.run)
        lines = (folder / "points.jsonl").read_text().splitlines()
        in_folder = [(p["batch"], p["p50_ns"], p["samples_per_s"]) for p in map(json.loads, lines)]
        assert in_folder == [(p["batch"], p["p50_ns"], p["samples_per_s"]) for p in points[task.id]]
        assert [batch for batch, *_ in in_folder] == [1, 2, 4, 8, 16, 32]
        assert json.loads((folder / "job.json").read_text())["request"]["sample"] is True


@pytest.mark.slow
def test_the_nights_have_dates_of_their_own_and_the_last_three_are_slower(laid_out: tuple[Path, Path]) -> None:
    nights = sorted((laid_out[0] / "nightly").iterdir())
    assert len({night.name for night in nights}) == 7
    figures: list[Any] = [
        FIGURES.compute(trace_of(night / "rank0.pt.trace.json.gz"), FIGURES.parse({})) for night in nights
    ]
    dates = [
        datetime.datetime.fromtimestamp((night.at_ns or 0) / 1e9, datetime.timezone.utc).date() for night in figures
    ]
    assert [f"loader-{date}" for date in dates] == [night.name for night in nights]
    steps = [night.figures["step.total"] for night in figures]
    assert min(steps[4:]) > 1.3 * max(steps[:4])


def test_the_job_of_the_sample_can_be_measured_again_here(queue: JobServices, job: Job) -> None:
    content = queue.blobs.path(job.request.model.blob).read_bytes()
    assert hashlib.sha256(content).hexdigest() == job.request.model.blob
    assert content == (SAMPLES / "models" / job.request.model.name).read_bytes()


def test_the_sample_machine_is_marked_and_cannot_register(queue: JobServices) -> None:
    (machine,) = queue.agents.list_visible()
    assert (machine.name, machine.capabilities.tags, machine.online(30)) == ("sample", ["sample"], False)
    assert "'" + "0" * 64 + "'" in (SAMPLES / "resnet10-sample" / "jobs.sql").read_text(), "the hash of no token"


def test_samples_are_small_and_tell_nothing_of_where_they_were_made() -> None:
    files = [path for path in SAMPLES.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < SMALL
    ours = [path for path in files if path.parent.parent.name == "resnet10-sample" or path.suffix == ".sql"]
    assert len(ours) > 20
    assert not [path for path in ours for name in TOLD_NOTHING if name in path.read_bytes()]


def test_modules_of_the_torch_sample_have_the_times_of_their_calls() -> None:
    """Against the events of the file itself: the sum of the calls of each module that is a node."""
    folder = SAMPLES / "pytorch-cpu"
    model = read_model(folder / "gpt.graph.json")
    times = measured(model, trace_of(folder / "gpt.pt.trace.json.gz"))
    calls: dict[str, list[float]] = {}
    for event in json.loads(gzip.decompress((folder / "gpt.pt.trace.json.gz").read_bytes()))["traceEvents"]:
        if event.get("name", "").startswith("nn.Module: "):
            calls.setdefault(event["name"], []).append(event["dur"])
    assert times.total_ns == pytest.approx(1000 * sum(calls["nn.Module: Gpt_0"]))
    drawn = [node for node in model.nodes if node.kind != "constant"]
    columns = zip(drawn, times.columns.calls, times.columns.time_ns, strict=True)
    times_by_name = {str(node.attributes["profile_name"]): (count, ns) for node, count, ns in columns if count}
    assert len(times_by_name) == 2 + 4 * 7 + 2  # embeddings, blocks, norm and head
    assert times_by_name == {name: (3, pytest.approx(1000 * sum(calls[name]))) for name in times_by_name}
