"""Answers to what a user types first: names that do not exist, suffixes, and answers without rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from visualprof.cli import main

MEGENGINE = SAMPLES / "megengine-train"


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return status, out, err


def test_an_unknown_span_lists_the_spans_of_the_worker(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = asked(capsys, "view", "overview", MEGENGINE, "--span", "nosuch")
    assert status == 2
    assert "There is no span 'nosuch' of the worker '1890' in " in err
    assert "Hint: spans: 1\n" in err


def test_a_file_without_spans_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    path = MEGENGINE / "1890.chrome_timeline.json.gz"
    _, _, err = asked(capsys, "view", "overview", path, "--span", "nosuch")
    assert "leave out --span" in err


def test_a_path_at_the_start_of_an_error_is_left_as_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES.parent)
    assert "visualprof: samples holds " in asked(capsys, "view", "overview", "samples")[2]


@pytest.mark.parametrize(("name", "start"), [("r.md", b"### visualprof"), ("r.MD", b"### visualprof")])
def test_a_report_has_the_format_that_its_suffix_names(
    name: str, start: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, "report", MEGENGINE, "-o", tmp_path / name)[0] == 0
    assert (tmp_path / name).read_bytes().startswith(start)


def test_an_empty_plan_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    out = asked(capsys, "view", "plan", MEGENGINE)[1]
    assert "No known change is predicted to save 2.5 % of the step." in out
    assert "change:" not in out


def test_a_change_without_a_subject_is_answered_with_the_changes_that_apply(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, _, err = asked(capsys, "whatif", MEGENGINE, "--change", "dataloader=0")
    assert "Hint: Changes that apply: sync=remove, launch=0, gpu*0.5" in err


def test_a_list_of_an_answer_is_a_table_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    out = asked(capsys, "view", "evaluation", SAMPLES / "resnet10-sample", "--table", "verdicts", "--format", "csv")[1]
    assert out.splitlines()[0].startswith("id,severity,report,batch")
    assert ",ov-f32-2t," in out
    err = asked(capsys, "view", "findings", MEGENGINE, "--table", "nosuch")[2]
    assert "findings, remarks" in err
