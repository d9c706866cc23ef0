"""`visualprof diff`: output and failures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLES
from tests.views.test_diff import BASE, NEW, run
from visualprof.cli import main
from visualprof.cli._limits import parse
from visualprof.errors import BadParameter

CI = ROOT / "docs" / "ci.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the present one, with before.json and after.json; of the latter a step takes 28 % longer."""
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name, work in (("before", BASE), ("after", NEW)):
        Path(f"{name}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": run(work)}))
    return tmp_path


def diff(
    capfd: pytest.CaptureFixture[str], *arguments: str, pair: tuple[str, str] = ("before.json", "after.json")
) -> tuple[int, str, str]:
    status = main(["diff", *pair, *arguments])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("limit", "status", "told"),
    [
        ("step.total>3%", 3, "FAILED: step: 320.00 us -> 410.00 us (+28.1%)"),
        ("step.total>30%", 0, "passed"),
        ("step.total>80us", 3, "FAILED"),
        ("step.total<-1%", 0, "passed"),
        ("kernel[name~add].total>40%", 3, "FAILED: 1 rows: 100.00 us -> 150.00 us (+50.0%)"),
        ("kernel[name~COME].total>1000%", 3, "FAILED: 1 rows: 0 ns -> 80.00 us"),
        ("kernel[name~sgemm].total>10%", 3, "+16.7%"),
        ("kernel[name~relu].calls>0 | step.cpu>1%", 0, "passed"),
        ("operator[name~aten].total>1us", 3, "FAILED"),
    ],
)
def test_limits(capfd: pytest.CaptureFixture[str], limit: str, status: int, told: str) -> None:
    difference = diff(capfd, "--fail-on", limit)
    assert (difference[0], told in difference[2]) == (status, True), difference[2]


def test_an_insignificant_change_breaks_no_limit(capfd: pytest.CaptureFixture[str]) -> None:
    # 20 steps that differ by a tenth of themselves, the mean of the second ones by 1 %
    for name, offset in (("before", 0), ("after", 4)):
        work = [[("aten::add", "add", 300 + (i * 37) % 61 + offset)] for i in range(20)]
        events = [e for i, item in enumerate(work) for e in _moved(run(item, 1), i)]
        Path(f"{name}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    status, out, err = diff(capfd, "--fail-on", "step.total>0.5%")
    assert (status, "it may be chance" in err, "not significant" in out) == (0, True, True)


def _moved(events: list[dict[str, object]], by: int) -> list[dict[str, object]]:
    """A step as the one of that number."""
    out = []
    for event in json.loads(json.dumps(events)):
        event["ts"] += 1000 * by
        event["name"] = event["name"].replace("#0", f"#{by}")
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 100 * by
        out.append(event)
    return out


@pytest.mark.parametrize(
    "limit", ["step.total", "step.total>3", "step.speed>3%", "memory.peak>3ms", "step[name~x].total>1%", "p99>5ms", ">"]
)
def test_invalid_limits_are_rejected(limit: str) -> None:
    with pytest.raises(BadParameter, match=re.escape(repr(limit))):
        parse(limit)


@pytest.mark.parametrize(
    ("pair", "arguments", "told"),
    [
        (("before.json", "gone.json"), (), "gone.json: No such file"),
        (("before.json", "notes.txt"), (), "no profile format recognizes"),
        (("before.json", "bare.json"), (), "bare.json has no steps, before.json has"),
        (("before.json", "empty.json"), (), "nothing that can be compared"),
        (
            ("before.json", "after.json"),
            ("--fail-on", "memory.peak>1MiB"),
            "Neither before.json nor after.json has data",
        ),
        (("before.json", "after.json"), ("--fail-on", "kernel[name~nccl].total>1%"), "neither run has that"),
        (("before.json", "after.json"), ("--view", "layers"), "there is no such view to compare"),
        (("before.json", "after.json"), ("--step", "99"), "There is no step '99'"),
        (("before.json", "after.json"), ("--view", "graph", "--fail-on", "step.total>1%"), "no limits"),
        (("before.json", "after.json"), ("--step", "1", "--format", "html"), "two profiles as a whole"),
    ],
)
def test_a_bad_pair_is_an_error_and_never_a_pass(
    capfd: pytest.CaptureFixture[str], pair: tuple[str, str], arguments: tuple[str, ...], told: str
) -> None:
    Path("notes.txt").write_text("hello")
    Path("bare.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": run(BASE, marked=False)}))
    event = {"ph": "X", "cat": "cpu_instant_event", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 0}
    Path("empty.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    status, _, err = diff(capfd, *arguments, pair=pair)
    assert (status, told in err, "Hint: " in err) == (2, True, True), err


def test_markdown_fits_a_comment_and_nothing_in_a_name_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    evil = [("aten::add", "a|b`<script>@everyone\n[x](http://y)", 200), *NEW]
    Path("after.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": run(evil)}))
    _, out, _ = diff(capfd, "--format", "markdown", "--view", "kernel", "--fail-on", "step.total>3%")
    assert "- :x: step.total\\>3%: FAILED" in out
    cause, row = (line for line in out.splitlines() if "script" in line)
    assert cause.startswith("- cause: `a/b'<script>@everyone�[x](http://y)`: 0.0 % -\\> 32.8 % of the mean step")
    assert row.startswith(
        "| `a/b'<script>@everyone�[x](http://y)` | 0 ns | 0.0 % | 200.00 us | 32.8 % | +200.00 us | – | added | yes |"
    )
    assert len(out) < 65_536  # what GitHub takes


def test_markdown_shows_the_slowest_rows_and_the_changes(capfd: pytest.CaptureFixture[str]) -> None:
    # six steps of 410 us, of them 400 in four kernels; the six operators and launches run in the 10 us before
    assert main(["report", "after.json", "--format", "markdown", "--compare", "before.json"]) == 0
    assert capfd.readouterr().out == "report.md: 4 kB\n"
    text = Path("report.md").read_text()
    assert text.startswith(
        "### visualprof\n\nstep 410.00 us (410.00 us to 410.00 us), recorded 2.46 ms  \n`after.json`"
    )
    assert "| Kernel | 400.00 us | 97.6 % |" in text
    assert "| `add` | 6 | 900.00 us | 150.00 us |" in text.partition("#### Kernels")[2]
    assert "| `aten::add` | 6 | 900.00 us |" in text.partition("#### Operators")[2]
    cpu = SAMPLES / "paddle-cpu"
    assert main(["report", str(cpu), "--format", "markdown", "-o", "cpu.md"]) == 0
    assert "| name | calls | host_self |" in Path("cpu.md").read_text()
    since = text.partition("#### Since the base\n")[2]
    capfd.readouterr()
    _, compared, _ = diff(capfd, "--format", "markdown")
    assert since.strip() == compared.removeprefix("### visualprof\n").strip()
    assert main(["report", "after.json", "--format", "markdown", "-o", "alone.md"]) == 0
    assert Path("alone.md").read_text() == text.partition("#### Since the base")[0].rstrip() + "\n\n"


def test_a_markdown_report_has_the_sentences_of_the_page() -> None:
    recording = str(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz")
    assert main(["report", recording, "--format", "markdown", "-o", "cnn.md"]) == 0
    text = Path("cnn.md").read_text()
    assert "- **Data loading stalls the step** (High): Saves 5.01 ms per step (35.3 %). The step waits for the" in text
    assert "1. **Load data in worker processes**, predicted step 9.16 ms" in text
    assert "%" not in text.replace(" %", "")  # no placeholder


def test_a_report_as_pdf_needs_a_browser(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("visualprof.cli.report.page_of", lambda *_, **__: b"<!doctype html>")
    assert main(["report", "after.json", "--format", "pdf"]) == 2
    assert "Install Chromium or Chrome" in capfd.readouterr().err
    monkeypatch.setattr("shutil.which", lambda name: sys.executable)  # one that does not know what is asked
    assert main(["report", "after.json", "--format", "pdf"]) == 2
    assert "did not print the report: " in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name or "visualprof" in path.name] == []


def test_json_is_the_whole_answer(capfd: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(diff(capfd, "--format", "json", "--step", "1")[1])
    assert (answer["step"]["delta_ns"], answer["step"]["significant"]) == (90_000, None)
    assert [note["id"] for note in answer["notes"]] == ["few_steps"]


def test_results_of_measured_models(capfd: pytest.CaptureFixture[str]) -> None:
    folder = SAMPLES / "resnet10-sample"
    status, out, err = diff(
        capfd, "--fail-on", "evaluation.p99>5%", pair=(str(folder / "ort-1t"), str(folder / "ort-2t"))
    )
    assert (status, "ort-2t, batch 32" in err, "samples_per_s" in out) == (3, True, True)
    assert diff(capfd, "--fail-on", "evaluation.p99>5%", pair=(str(folder), str(folder)))[0] == 0


@pytest.mark.slow
def test_models(capfd: pytest.CaptureFixture[str]) -> None:
    model = str(SAMPLES / "models" / "resnet10.onnx")
    status, out, _ = diff(capfd, "--view", "graph", "--format", "json", pair=(model, model))
    assert (status, json.loads(out)["changed"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the lines are a shell's")
def test_the_lines_of_the_guide_run(folder: Path) -> None:
    """Those of docs/ci.md that call the program, as they stand there."""
    lines = re.findall(r"^\s*(visualprof diff .*?[^\\])$", CI.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(lines) >= 3
    (folder / "visualprof").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m visualprof "$@"\n')
    (folder / "visualprof").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for line in lines:
        done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 3, (line, done.stdout, done.stderr)
        assert "step.total>3%" in done.stderr


def test_the_peaks_of_two_memory_snapshots_are_compared(capfd: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "tests" / "fixtures" / "memory_snapshots"
    pair = (str(folder / "train_ring_buffer.pickle.gz"), str(folder / "train_oom.pickle"))
    status, out, _ = diff(capfd, "--view", "memory", "--fail-on", "memory.peak>2%", pair=pair)
    assert status == 3
    assert re.search(r"device 0 +peak_reserved +82\.00 MiB +122\.00 MiB +40\.00 MiB", out)
    assert diff(capfd, "--view", "memory", "--fail-on", "memory.peak>50%", pair=pair)[0] == 0


def test_memory_snapshots_of_two_ranks_are_compared_without_a_choice(capfd: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "tests" / "fixtures" / "memory_snapshots"
    pair = (str(folder / "rank0_snapshot.pickle"), str(folder / "rank1_snapshot.pickle"))  # rank 1 uses device 1
    status, out, err = diff(capfd, "--fail-on", "memory.peak>2%", pair=pair)
    assert status == 3
    assert "memory.peak>2%: FAILED: device 0 -> device 1: 29.95 MiB -> 50.79 MiB (+69.6%)" in err
    assert re.search(r"device 0 -> device 1 +peak_reserved +44\.00 MiB +78\.00 MiB +34\.00 MiB", out)
    status, _, err = diff(capfd, "--view", "operator", pair=pair)
    assert (status, "Memory snapshots have the view 'memory'" in err) == (2, True), err


def test_two_memory_snapshots_have_no_step_times(capfd: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "tests" / "fixtures" / "memory_snapshots"
    pair = (str(folder / "rank0_snapshot.pickle"), str(folder / "rank1_snapshot.pickle"))
    answer = json.loads(diff(capfd, "--format", "json", pair=pair)[1])
    assert (answer["step"], answer["parts"]["columns"]["part"], answer["notes"]) == (None, [], [])
    assert "peak_allocated" in answer["memory"]["columns"]["what"]


def test_a_snapshot_and_a_profile_are_compared_as_profiles(capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = str(ROOT / "tests" / "fixtures" / "memory_snapshots" / "rank0_snapshot.pickle")
    assert "has no steps" in diff(capfd, pair=("before.json", snapshot))[2]
    assert "has no steps" in diff(capfd, pair=(snapshot, "after.json"))[2]
