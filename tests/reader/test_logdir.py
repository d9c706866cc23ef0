"""The log directories as they change. A fake parser gives each test the moment at which a parse ends."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.conftest import until
from tests.manual_clock import ManualClock
from tests.recordings import recording_path
from visualprof.errors import NotFound
from visualprof.reader import read_trace
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Span, scan_profiles
from visualprof.reader.logdir.pool import Listener
from visualprof.reader.logdir.summary import Failure, Summary
from visualprof.reader.logdir.watch import Watcher


class FakeParser:
    """Keeps jobs until the test ends them."""

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}
        self.order: dict[str, tuple[int, ...]] = {}
        self.hurried: list[str] = []
        self.cancelled: list[str] = []
        self.listener: Listener | None = None
        self.on_submit = lambda: None

    def start(self, listener: Listener) -> None:
        self.listener = listener

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        self.on_submit()
        self.waiting[key] = Path(path).name
        self.order[Path(path).name] = order

    def prioritize(self, key: str) -> None:
        self.hurried.append(self.waiting[key])

    def cancel(self, key: str) -> None:
        self.cancelled.append(self.waiting.pop(key, ""))

    def close(self) -> None:
        pass

    def end(self, name: str, outcome: Summary | Failure | None = None) -> None:
        key = next(key for key, waiting in self.waiting.items() if waiting == name)
        del self.waiting[key]
        assert self.listener
        self.listener.on_finished(key, outcome or summary())

    def progress(self, name: str, fraction: float) -> None:
        assert self.listener
        for key, waiting in self.waiting.items():
            if waiting == name:
                self.listener.on_progress(key, fraction)


def summary(fingerprint: str = "f", truncated: bool = False, rank: int = -1) -> Summary:
    return Summary(
        fingerprint=fingerprint,
        format="kineto",
        framework="pytorch",
        rank=rank,
        events=1,
        duration_ns=1,
        steps=(),
        views=("overview",),
        warnings=(),
        truncated=truncated,
    )


class Fixture:
    """A log directory of which each scan is asked for."""

    def __init__(self, folder: Path, settle_s: float = 0.0) -> None:
        self.folder = folder / "runs"
        self.folder.mkdir()
        self.parser = FakeParser()
        self.cache = Cache(folder / "cache")
        self.clock = ManualClock()
        self.logdir = LogDirectory(
            [self.folder], self.parser, self.cache, events=False, settle_s=settle_s, clock=self.clock
        )

    def write(self, name: str, content: str | None = None, age_s: float = 100.0) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(profile() if content is None else content)
        then_ns = self.clock.time_ns() - int(age_s * 1e9)
        os.utime(path, ns=(then_ns, then_ns))
        return path

    def spans(self) -> dict[str, Span]:
        """After a scan: spans by file."""
        self.logdir.rescan()
        runs = self.logdir.listing().runs
        return {span.log_file.file: span for run in runs for worker in run.workers for span in worker.spans}

    def states(self) -> dict[str, str]:
        return {file: span.state for file, span in self.spans().items()}


@pytest.fixture
def logs(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def profile(events: int = 1) -> str:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    return json.dumps({"schemaVersion": 1, "traceEvents": [event] * events})


def test_data_shared_by_many_files_is_stored_once() -> None:
    views = [
        Summary(
            fingerprint=str(i),
            format="kineto",
            framework="pytorch",
            rank=i,
            events=1,
            duration_ns=1,
            steps=(),
            views=tuple("ab"),
            warnings=(),
            truncated=False,
        ).views
        for i in range(2)
    ]
    assert views == [("a", "b")] * 2
    assert views[0] is views[1]


def test_a_file_is_queued_parsed_and_ready(logs: Fixture) -> None:
    logs.write("a.json")
    assert logs.states() == {"a.json": "waiting"}
    logs.parser.progress("a.json", 0.5)
    assert logs.states() == {"a.json": "parsing"}
    assert logs.spans()["a.json"].progress == 0.5
    logs.parser.end("a.json")
    assert logs.states() == {"a.json": "ready"}


def test_each_change_raises_the_revision_and_no_change_does_not(logs: Fixture) -> None:
    path = logs.write("a.json")
    seen = [logs.logdir.revision]

    def changed() -> bool:
        logs.logdir.rescan()
        seen.append(logs.logdir.revision)
        return seen[-1] > seen[-2]

    assert changed()
    assert not changed()
    logs.parser.end("a.json")
    assert changed()
    logs.write("b.json", "{}")
    assert changed()
    path.unlink()
    assert changed()
    assert not changed()


def test_a_failure_has_its_reason_and_hides_nothing(logs: Fixture) -> None:
    logs.write("bad.json")
    logs.write("good.json")
    logs.spans()
    logs.parser.end("bad.json", Failure("broken", "copy it again"))
    logs.parser.end("good.json")
    assert logs.states() == {"bad.json": "failed", "good.json": "ready"}
    assert logs.spans()["bad.json"].failure == Failure("broken", "copy it again")


def test_strangers_are_listed_with_the_reason(logs: Fixture) -> None:
    logs.write("notes.json", '{"hello": 1}')
    logs.write("train.py", "print()")
    assert logs.states() == {}
    (skipped,) = logs.logdir.listing().skipped
    assert skipped.file == "notes.json"
    assert "no profile format recognizes" in skipped.error
    assert not skipped.error.startswith("notes.json")


def test_an_empty_file_grows_and_opens_automatically(logs: Fixture) -> None:
    logs.write("a.json", "", age_s=10)
    span = logs.spans()["a.json"]
    assert span.state == "growing"
    assert span.failure
    assert "empty" in span.failure.error
    assert not logs.parser.waiting
    logs.write("a.json")
    assert logs.states() == {"a.json": "waiting"}
    logs.parser.end("a.json")
    assert logs.states() == {"a.json": "ready"}


@pytest.mark.parametrize(("content", "text"), [("", "empty"), ('{"schemaVersion": 1, "dev', "ends in the middle")])
def test_an_unchanging_file_without_a_format_is_not_growing(logs: Fixture, content: str, text: str) -> None:
    logs.write("a.json", content, age_s=600)
    span = logs.spans()["a.json"]
    assert span.state == "failed"
    assert span.failure
    assert text in span.failure.error
    assert "it is no longer being written" in span.failure.hint
    logs.write("a.json", content + " ", age_s=0)
    assert logs.states() == {"a.json": "growing"}
    logs.write("a.json")
    assert logs.states() == {"a.json": "waiting"}


def test_a_file_cut_short_grows_and_opens_when_completed(logs: Fixture) -> None:
    logs.write("a.json", profile(100)[:2000], age_s=10)
    logs.spans()
    logs.parser.end("a.json", summary(truncated=True))
    assert logs.states() == {"a.json": "growing"}
    assert logs.spans()["a.json"].summary is not None  # what is there can be looked at
    logs.write("a.json", profile(100), age_s=50)
    assert logs.states() == {"a.json": "waiting"}
    logs.parser.end("a.json", summary("whole"))
    assert logs.states() == {"a.json": "ready"}


def test_a_failed_file_is_retried_when_it_changes(logs: Fixture) -> None:
    logs.write("a.json")
    logs.spans()
    logs.parser.end("a.json", Failure("broken", ""))
    assert logs.states() == {"a.json": "failed"}
    assert not logs.parser.waiting
    logs.write("a.json", profile(2))
    assert logs.states() == {"a.json": "waiting"}


def test_an_unknown_file_that_becomes_a_profile_is_shown(logs: Fixture) -> None:
    logs.write("a.json", "{}")
    assert logs.states() == {}
    logs.write("a.json")
    assert logs.states() == {"a.json": "waiting"}
    assert logs.logdir.listing().skipped == ()


def test_a_replaced_file_is_parsed_anew_and_its_old_parse_forgotten(logs: Fixture) -> None:
    path = logs.write("a.json")
    logs.spans()
    other = logs.write("b.json.new", age_s=100)
    other.replace(path)
    logs.write("a.json", profile(2), age_s=99)
    assert logs.states() == {"a.json": "waiting"}
    assert logs.parser.cancelled == ["a.json"]
    logs.parser.end("a.json", summary("second"))
    found = logs.spans()["a.json"].summary
    assert found
    assert found.fingerprint == "second"


def test_the_late_result_of_an_old_parse_is_ignored(logs: Fixture) -> None:
    logs.write("a.json")
    logs.spans()
    (old,) = logs.parser.waiting
    logs.write("a.json", profile(2))
    logs.spans()
    logs.logdir.on_finished(old, summary("old"))
    assert logs.states() == {"a.json": "waiting"}


def test_a_deleted_file_and_its_run_disappear(logs: Fixture) -> None:
    path = logs.write("run/a.json")
    logs.spans()
    path.unlink()
    assert logs.states() == {}
    assert logs.logdir.listing().runs == ()
    assert logs.parser.cancelled == ["a.json"]


def test_a_new_file_in_a_known_folder_and_a_new_folder_appear(logs: Fixture) -> None:
    logs.write("run/rank0.json")
    assert list(logs.spans()) == ["run/rank0.json"]
    logs.write("run/rank1.json")
    logs.write("other/rank0.json")
    assert list(logs.spans()) == ["other/rank0.json", "run/rank0.json", "run/rank1.json"]


def test_a_file_that_just_changed_is_shown_but_not_parsed_yet(tmp_path: Path) -> None:
    logs = Fixture(tmp_path, settle_s=0.3)
    logs.write("a.json", age_s=0)
    assert logs.states() == {"a.json": "waiting"}
    assert not logs.parser.waiting
    logs.write("a.json", profile(2), age_s=0)
    assert logs.states() == {"a.json": "growing"}
    logs.clock.advance(0.29)
    assert logs.states() == {"a.json": "growing"}
    logs.clock.advance(0.02)
    assert logs.states() == {"a.json": "waiting"}
    assert logs.parser.waiting


def test_a_file_with_a_time_in_the_future_settles(tmp_path: Path) -> None:
    logs = Fixture(tmp_path, settle_s=0.2)
    logs.write("a.json", age_s=-1000)
    logs.spans()
    assert not logs.parser.waiting
    logs.clock.advance(0.25)
    logs.spans()
    assert logs.parser.waiting


def test_a_requested_file_is_parsed_first_then_the_newest(logs: Fixture) -> None:
    logs.write("old.json", age_s=1000)
    logs.write("new.json", age_s=10)
    spans = logs.spans()
    assert logs.parser.order["new.json"] < logs.parser.order["old.json"]
    logs.logdir.prioritize(spans["old.json"])
    assert logs.parser.hurried == ["old.json"]


def test_ranks_in_a_folder_are_workers_of_the_same_run(logs: Fixture) -> None:
    for rank in (0, 2, 10):
        logs.write(f"ddp/rank{rank}.json")
    logs.spans()
    (run,) = logs.logdir.listing().runs
    assert (run.id, [worker.id for worker in run.workers]) == ("ddp", ["rank0", "rank2", "rank10"])


def test_the_rank_in_the_content_is_worth_more_than_the_name(logs: Fixture) -> None:
    logs.write("worker0.json")
    logs.spans()
    logs.parser.end("worker0.json", summary(rank=5))
    assert logs.logdir.listing().runs[0].workers[0].rank == 5


@pytest.mark.parametrize(
    "folder",
    [
        "accelerate",
        "hta",
        "megatron",
        "nsys",
        "primus",
        "sglang",
        "sglang-v2",
        "torchtune",
        "trtllm",
        "trtllm-new",
        "vllm",
    ],
)
def test_rank_files_of_public_frameworks_form_one_run(folder: str) -> None:
    (run,) = scan_profiles([recording_path(f"cases/reports/32-rank-file-names/{folder}")]).runs
    assert [worker.rank for worker in run.workers] == [0, 1]


def stating(path: Path, rank: int, size: int) -> None:
    info = {"backend": "nccl", "rank": rank, "world_size": size}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": []}))


def test_files_without_ranks_in_their_names_form_a_run_if_they_state_different_ranks(tmp_path: Path) -> None:
    stating(tmp_path / "oak.json", 1, 2)
    stating(tmp_path / "elm.json", 0, 2)
    (run,) = scan_profiles([tmp_path]).runs
    assert [(worker.id, worker.rank) for worker in run.workers] == [("elm", 0), ("oak", 1)]


def test_recordings_of_the_same_rank_are_different_runs(tmp_path: Path) -> None:
    """Programs with many ranks are often recorded on rank 0 only."""
    stating(tmp_path / "before.json", 0, 8)
    stating(tmp_path / "after.json", 0, 8)
    assert [run.id for run in scan_profiles([tmp_path]).runs] == ["after", "before"]


def test_stamps_are_spans_in_order_of_time(logs: Fixture) -> None:
    for stamp in ("1700000000003", "1700000000001", "1700000000002"):
        logs.write(f"run/w.{stamp}.pt.trace.json")
    logs.spans()
    (worker,) = logs.logdir.listing().runs[0].workers
    assert [span.id for span in worker.spans] == ["1700000000001", "1700000000002", "1700000000003"]


def test_the_same_recording_packed_and_plain_gives_two_spans(logs: Fixture) -> None:
    logs.write("a.json")
    logs.write("a.json.gz")
    logs.spans()
    (worker,) = logs.logdir.listing().runs[0].workers
    assert [span.id for span in worker.spans] == ["1", "a.json.gz"]


def test_files_in_the_log_directory_itself_take_its_name(logs: Fixture) -> None:
    logs.write("rank0.json")
    logs.spans()
    (run,) = logs.logdir.listing().runs
    assert (run.id, run.name) == (".", "runs")


def test_ids_that_do_not_exist_are_named(logs: Fixture) -> None:
    logs.write("run/rank0.json")
    logs.spans()
    listing = logs.logdir.listing()
    assert listing.find("run").log_file.name == "rank0.json"
    for ids in (("nope",), ("run", "nope"), ("run", "rank0", "nope")):
        with pytest.raises(NotFound, match="nope"):
            listing.find(*ids)


def test_a_parsed_span_opens_from_the_cache(logs: Fixture) -> None:
    path = logs.write("a.json")
    logs.spans()
    logs.cache.store(read_trace(path), "f")
    logs.parser.end("a.json")
    trace = logs.logdir.open(logs.spans()["a.json"])
    assert trace is not None
    assert len(trace.events) == 1
    assert logs.logdir.open(logs.spans()["a.json"]) is trace


def test_a_trace_evicted_from_the_cache_is_read_again(logs: Fixture) -> None:
    logs.write("a.json")
    logs.spans()
    logs.parser.end("a.json", summary("gone"))
    assert logs.logdir.open(logs.spans()["a.json"]) is None
    assert logs.states() == {"a.json": "waiting"}
    assert logs.parser.hurried == ["a.json"]


def test_a_cache_that_keeps_nothing_ends_in_an_error_not_in_a_circle(logs: Fixture) -> None:
    logs.write("a.json")
    for _ in range(5):
        span = logs.spans()["a.json"]
        if span.state == "waiting":
            logs.parser.end("a.json", summary("gone"))
        logs.logdir.open(logs.spans()["a.json"])
    assert logs.states() == {"a.json": "failed"}


def test_several_log_directories_do_not_mix(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "rank0.json").write_text(profile())
    parser = FakeParser()
    logdir = LogDirectory([tmp_path / "x", tmp_path / "y"], parser, Cache(tmp_path / "c"), events=False, settle_s=0)
    logdir.rescan()
    assert [run.id for run in logdir.listing().runs] == ["x/run", "y/run"]


@pytest.mark.parametrize("events", [True, False])
def test_changes_are_watched_automatically(tmp_path: Path, events: bool) -> None:
    parser = FakeParser()
    (tmp_path / "runs").mkdir()
    if events:
        watcher = Watcher([tmp_path / "runs"], lambda: None)
        if not watcher.start():
            pytest.skip("no file events here")
        watcher.stop()
    scan_s = (60.0, 60.0) if events else (0.1, 0.1)
    cache = Cache(tmp_path / "cache")
    logdir = LogDirectory([tmp_path / "runs"], parser, cache, events=events, scan_s=scan_s, settle_s=0.1)
    logdir.start()
    try:
        until(lambda: not events or logdir.watching == "events")
        path = tmp_path / "runs" / "new" / "a.json"
        path.parent.mkdir()
        path.write_text(profile())
        until(lambda: len(parser.waiting) == 1)
        path.unlink()
        until(lambda: not logdir.listing().runs)
    finally:
        logdir.close()


@pytest.mark.slow
def test_reading_while_scanning_is_safe(logs: Fixture) -> None:
    stop = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        try:
            while not stop.is_set():
                logs.logdir.listing()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for i in range(30):
        logs.write(f"f{i}.json")
        logs.spans()
    stop.set()
    thread.join()
    assert not errors


def test_real_folders_look_as_expected(tmp_path: Path) -> None:
    logdir = LogDirectory([recording_path("traces/kineto").parent], FakeParser(), Cache(tmp_path), events=False)
    logdir.rescan()
    runs = {run.id: [worker.id for worker in run.workers] for run in logdir.listing().runs}
    assert runs["torch_cpu/ddp4"] == ["rank0", "rank1", "rank2", "rank3"]
    assert runs["paddle/synthetic_gpu_2workers"] == ["host_rank0", "host_rank1"]
    assert runs["kineto/hta/sampled"] == ["sampled_rank-0of128", "sampled_rank-1of128"]
    for name in ("resnet50_num_workers_0", "resnet50_num_workers_4"):  # two experiments, not two ranks
        assert runs[f"kineto/tb_plugin/{name}"] == [f"{name}__worker0"]
    assert runs["kineto/hta/triton_example"] == ["triton_example"]
    assert runs["megengine/runner/lenet"] == ["profile"]
    assert runs["megengine/train/lenet_default"] == ["lenet_default"]
    assert runs["torch_cpu/resnet_small"] == ["resnet_small"]
    skipped = {problem.file for problem in logdir.listing().skipped}
    assert "kineto/expected_hta.json" in skipped
    assert not any(file.endswith(("/job.json", "/env.json", "/status.json")) for file in skipped)  # of a remote run
    assert not any(file.endswith((".py", ".md", ".txt", ".svg", ".jsonl")) for file in skipped)


def died() -> Failure:
    return Failure("a.json: the process that read it was ended by SIGKILL", "", 500, "ProcessDied")


def test_a_file_whose_process_died_is_retried_once(logs: Fixture) -> None:
    logs.write("a.json")
    logs.spans()
    logs.parser.end("a.json", died())
    assert logs.states() == {"a.json": "waiting"}
    logs.parser.end("a.json", died())
    assert logs.states() == {"a.json": "failed"}
    assert not logs.parser.waiting


def test_a_failure_not_caused_by_the_file_is_retried_on_request(logs: Fixture) -> None:
    logs.write("a.json")
    logs.write("b.json")
    logs.spans()
    logs.parser.end("b.json", Failure("b.json: damaged", "", 422, "FormatError"))
    logs.parser.end("a.json", Failure("a.json: not enough memory to read it", "", 500, "MemoryError"))
    logs.logdir.retry_failed()
    assert logs.states() == {"a.json": "waiting", "b.json": "failed"}
    logs.parser.end("a.json")
    assert logs.states() == {"a.json": "ready", "b.json": "failed"}


def test_a_file_that_was_cut_and_does_not_change_is_not_being_written(logs: Fixture) -> None:
    logs.write("a.json", age_s=100)
    logs.write("b.json", age_s=59)
    logs.spans()
    for name in ("a.json", "b.json"):
        logs.parser.end(name, summary(truncated=True))
    assert logs.states() == {"a.json": "ready", "b.json": "growing"}
    logs.clock.advance(1.1)
    assert logs.states() == {"a.json": "ready", "b.json": "ready"}


def test_examining_new_files_does_not_delay_the_next_scan(logs: Fixture) -> None:
    """The pause after a scan is a multiple of its result: 3,000 new files must not put off the next scan."""

    logs.parser.on_submit = lambda: logs.clock.advance(1.0)
    for number in range(3):
        logs.write(f"{number}.json")
    began = logs.clock.monotonic()
    assert logs.logdir.rescan() == 0
    assert logs.clock.monotonic() - began == 3
