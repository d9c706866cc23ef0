"""convert-logs: every value of VisualDL's sample logs in event files; TensorBoard's reader is tests/capture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.cli import main
from visualprof.cli._subjects import run_data_below
from visualprof.reader.protobuf import Message
from visualprof.reader.run_data import events
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.tensors import tensor_values

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data" / "visualdl"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())


def convert(name: str, out: Path) -> int:
    return main(["convert-logs", str(SAMPLES / name), "-o", str(out)])


def all_points(folder: Path) -> dict[tuple[str, str], list[Any]]:
    data = run_data_below(str(folder))
    return {
        (row.line, row.tag): [[column.tolist() for column in part.points] for part in data.points(row.line, row.tag)]
        for row in data.scalar_tags()
    }


@pytest.mark.parametrize("name", ["kinds", "odd", "restart", "hparams"])
def test_every_scalar_keeps_its_step_time_and_value(name: str, tmp_path: Path) -> None:
    assert convert(name, tmp_path / "out") == 0
    before, after = all_points(SAMPLES / name), all_points(tmp_path / "out")
    assert before.keys() == after.keys()
    for key, parts in before.items():
        for columns, expected in zip(after[key], parts, strict=True):
            np.testing.assert_array_equal(columns[0], expected[0])
            np.testing.assert_allclose(columns[1], expected[1], atol=300)  # a float64 of seconds resolves 240 ns
            np.testing.assert_array_equal(columns[2], expected[2])


def test_all_other_kinds_are_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert("kinds", tmp_path) == 0
    expected = EXPECTED["kinds"]
    path = Path(capsys.readouterr().out.strip())
    file, raw = EventFile(str(path)), path.read_bytes()
    file.update()

    def values(tag: str) -> list[Message]:
        samples = file.series[tag].samples
        return [
            Message(raw[at : at + size]) for at, size in zip(samples.start.tolist(), samples.size.tolist(), strict=True)
        ]

    assert file.series["picture"].samples.step.tolist() == expected["image"]["picture"]["steps"]
    image = values("picture")[0].message(events.IMAGE)
    assert [image.number(i) for i in (1, 2, 3)] == [4, 6, 3]
    for kind, plugin, tag in (("pr_curve", "pr_curves", "pr"), ("roc_curve", "roc_curves", "roc")):
        assert file.series[tag].plugin == plugin
        rows = tensor_values(values(tag)[0].message(events.TENSOR)).reshape(6, -1)
        given = expected[kind][tag]
        assert rows[:4].tolist() == [given[name] for name in ("tp", "fp", "tn", "fn")]
        np.testing.assert_allclose(rows[4], given["precision" if kind == "pr_curve" else "true_tpr"], rtol=1e-6)
    (histogram, *_) = values("weights/w1")
    message, given = histogram.message(events.HISTOGRAM), expected["histogram"]["weights/w1"]["0"]
    assert list(message.reals(7, 8)) == [0, *given["counts"]]
    assert list(message.reals(6, 8)) == given["edges"]
    vectors = (tmp_path / "00000" / "space" / "tensors.tsv").read_text().splitlines()
    space = expected["embeddings"]["space"]
    np.testing.assert_allclose(
        [[float(cell) for cell in row.split("\t")] for row in vectors], space["vectors"], rtol=1e-6
    )
    labels = (tmp_path / "00000" / "space" / "metadata.tsv").read_text().splitlines()
    assert labels == ["\t".join(row) for row in [space["header"], *space["labels"]]]
    (note,) = values("note/text_summary")
    assert note.message(events.TENSOR).text(8) == expected["text"]["note"]["text"]
    assert values("tone")[0].message(events.AUDIO).number(3) == expected["audio"]["tone"]["frames"]


def test_damage_is_reported_and_the_rest_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "logs" / "deep"
    source.mkdir(parents=True)
    whole = next((SAMPLES / "restart").glob("*000.log")).read_bytes()
    (source / "vdlrecords.5.log").write_bytes(whole[:100] + b"\xff" * 8 + whole[108:])
    shutil.copy(SAMPLES.parent / "tensorboard" / "zeros" / "events.out.tfevents.1800000000.host.1.0", source)
    assert main(["convert-logs", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]) == 1
    assert "not converted" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out" / "deep").iterdir()] == [
        "events.out.tfevents.0000000005.visualdl.log"
    ]
    assert main(["convert-logs", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_folder_without_logs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert-logs", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "There is no log of VisualDL in" in capsys.readouterr().err
    assert main(["convert-logs", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 2
