"""The reader of run data: every value of the samples, damage, growth, restarts, parallel writers."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.reader import native
from visualprof.reader.fields import parse_fields
from visualprof.reader.protobuf import Message
from visualprof.reader.run_data import event_file as event_files
from visualprof.reader.run_data import events, framing
from visualprof.reader.run_data.crc32c import crc32c, masked_crc
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.folders import DataFile, group_by_run, is_data_name
from visualprof.reader.run_data.framing import find_record, split_frames
from visualprof.reader.run_data.rows import UNKNOWN_NS
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.tensors import tensor_values

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data"
TENSORBOARD, VISUALDL = SAMPLES / "tensorboard", SAMPLES / "visualdl"
EXPECTED = {folder.name: json.loads((folder / "expected.json").read_text()) for folder in (TENSORBOARD, VISUALDL)}


def data_files(folder: Path) -> list[DataFile]:
    """Return the files of a folder as one run."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and is_data_name(path.name)]
    return [
        DataFile("" if path.parent == folder else str(path.parent.relative_to(folder)), str(path)) for path in paths
    ]


def read(folder: Path) -> RunData:
    data = RunData()
    assert data.update(data_files(folder))
    return data


def values(data: RunData, tag: str, line: str = "") -> list[list[float]]:
    """Return steps and values of a tag with one writer."""
    (joined,) = data.points(line, tag)
    return [
        [step, value] for step, value in zip(joined.points.step.tolist(), joined.points.value.tolist(), strict=True)
    ]


def frame(payload: bytes) -> bytes:
    head = struct.pack("<Q", len(payload))
    return head + struct.pack("<I", masked_crc(head)) + payload + struct.pack("<I", masked_crc(payload))


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step: int, value: float, tag: str = "x", wall_s: float = 1.8e9, more: bytes = b"") -> bytes:
    summary = field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value) + more)
    return b"\x09" + struct.pack("<d", wall_s) + b"\x10" + varint(step) + field(5, summary)


HEAD = frame(b"\x09" + struct.pack("<d", 1.8e9) + field(3, b"brain.Event:2") + bytes([0x52, 24]) + bytes(24))


@pytest.fixture(params=["native", "python"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with and without the native library."""
    if request.param == "python":
        monkeypatch.setattr(framing, "function", lambda *_: None)
        monkeypatch.setattr(events, "function", lambda *_: None)
        monkeypatch.setattr("visualprof.reader.run_data.texts.function", lambda *_: None)
    elif native.library() is None:
        pytest.skip(native.describe_state())


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("producer", ["torch", "tensorboardx"])
def test_scalars_of_torch_and_tensorboardx(producer: str) -> None:
    data, expected = read(TENSORBOARD / producer), EXPECTED["tensorboard"][producer]
    for tag, numbers in expected["scalars"].items():
        assert [value for _, value in values(data, tag)] == pytest.approx(numbers, rel=1e-6)
        assert [step for step, _ in values(data, tag)] == list(range(len(numbers)))
    for name, numbers in expected["both"].items():
        line = f"both_{name}" if producer == "torch" else f"both/{name}"
        assert [value for _, value in values(data, "both", line)] == pytest.approx(numbers, rel=1e-6, abs=1e-7)
    assert values(data, "metric/accuracy", "trial")[0][1] == expected["hparams"]["trial"]["metric/accuracy"]
    assert data.warnings() == []


def test_tensor_scalars_keep_their_precision() -> None:
    data, expected = read(TENSORBOARD / "torch"), EXPECTED["tensorboard"]["torch"]["new"]
    assert [value for _, value in values(data, "new/float")] == expected["new/float"]
    assert [value for _, value in values(data, "new/double")] == expected["new/double"]


def test_metadata_on_the_first_value_applies_to_all() -> None:
    data = read(TENSORBOARD / "tf2")
    assert [value for _, value in values(data, "loss", "train")] == EXPECTED["tensorboard"]["tf2"]["scalars"]["loss"]
    (loss,) = [row for row in data.scalar_tags() if row.tag == "loss"]
    assert (loss.points, loss.last, loss.min, loss.max) == (5, 1.0, 0.0, 1.0)


def test_metrics_of_sessions_are_lines() -> None:
    data = read(TENSORBOARD / "hparams")
    rows = {row.line: row.last for row in data.scalar_tags()}
    assert rows == {"session0/valid": 0.5, "session1/valid": pytest.approx(0.8)}


def test_scalars_of_visualdl() -> None:
    data, expected = read(VISUALDL / "kinds"), EXPECTED["visualdl"]["kinds"]
    for tag, series in expected["scalar"].items():
        (joined,) = data.points("", tag)
        assert joined.points.step.tolist() == series["step"]
        assert joined.points.value.tolist() == pytest.approx(series["value"], rel=1e-6)
        assert (joined.points.wall_ns // 10**6).tolist() == series["wall_ms"]
    for name, numbers in expected["scalars"]["both"].items():
        assert [value for _, value in values(data, f"both/{name}")] == pytest.approx(numbers, rel=1e-6, abs=1e-7)
    trial = read(VISUALDL / "hparams")
    assert [value for _, value in values(trial, "metric/accuracy", "trial2")] == pytest.approx([0.2, 0.75])


@pytest.mark.parametrize("writer", ["tensorboard", "visualdl"])
def test_steps_that_repeat_or_go_back_are_sorted_and_the_last_counts(writer: str) -> None:
    data = read(SAMPLES / writer / "odd")
    (joined,) = data.points("", "x")
    expected = [(0, 1.0), (1, math.nan), (2, math.inf), (3, 3.5), (4, 4.0), (5, 5.0), (10, 10.0)]
    assert joined.points.step.tolist() == [step for step, _ in expected]
    np.testing.assert_array_equal(joined.points.value, [value for _, value in expected])
    assert (joined.superseded.step.tolist(), joined.superseded.value.tolist()) == ([3], [-math.inf])


def test_times_in_seconds_and_numbers_beyond_32_bits() -> None:
    data, expected = read(VISUALDL / "odd"), EXPECTED["visualdl"]["odd"]
    (joined,) = data.points("", "seconds")
    assert joined.points.wall_ns.tolist() == [expected["seconds"]["wall_s"] * 10**9]
    assert values(data, "large")[0][1] == expected["large"]["stored"]


@pytest.mark.parametrize("writer", ["tensorboard", "visualdl"])
def test_a_restart_replaces_points_from_its_first_step(writer: str) -> None:
    data = read(SAMPLES / writer / "restart")
    expected = EXPECTED[writer]["restart"]
    assert values(data, "x") == expected["x" if writer == "tensorboard" else "joined"]
    (joined,) = data.points("", "x")
    assert joined.superseded.step.tolist() == [6, 7, 8, 9]
    assert joined.superseded.value.tolist() == [6.0, 7.0, 8.0, 9.0]


def test_parallel_writers_are_both_read(tmp_path: Path) -> None:
    data = read(TENSORBOARD / "two_files")
    assert values(data, "a") == EXPECTED["tensorboard"]["two_files"]["a"]
    assert values(data, "b") == EXPECTED["tensorboard"]["two_files"]["b"]
    for name, sign in (("a.tfevents.1", 1), ("a.tfevents.2", -1)):
        records = [frame(event(step, sign * step, wall_s=1.8e9 + step)) for step in range(3)]
        (tmp_path / name).write_bytes(HEAD + b"".join(records))
    first, second = read(tmp_path).points("", "x")
    assert (first.points.value.tolist(), second.points.value.tolist()) == ([0, 1, 2], [0, -1, -2])
    assert [row.writer for row in read(tmp_path).scalar_tags()] == ["a.tfevents.1", "a.tfevents.2"]


DAMAGED = {
    "cut_data": (4, ""),
    "cut_length": (5, ""),
    "bad_data": (4, "23 bytes were skipped in 1 places, the first at byte 167: the checksum of a record is wrong"),
    "bad_length": (4, "39 bytes were skipped in 1 places, the first at byte 155: the length of a record is damaged"),
    "zeros": (5, "64 bytes were skipped in 1 places, the first at byte 233: the length of a record is damaged"),
    "huge_length": (5, "13 bytes were skipped in 1 places, the first at byte 233: the length of a record is damaged"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_whole_records_of_a_damaged_event_file_are_read(name: str) -> None:
    data, (points, warning) = read(TENSORBOARD / name), DAMAGED[name]
    assert len(values(data, "a")) == points
    (path,) = (TENSORBOARD / name).iterdir()
    old_s = 1.7e9
    os.utime(path, (old_s, old_s))
    data.update(data_files(TENSORBOARD / name))
    expected = warning or "ends in the middle of a record"
    assert len(data.warnings()) == 1
    assert expected in data.warnings()[0]
    assert data.warnings()[0].startswith(f"{name}/events.out.tfevents")


def test_a_warning_names_the_folder_of_the_run_and_the_line(tmp_path: Path) -> None:
    source = next((TENSORBOARD / "bad_data").iterdir())
    folder = tmp_path / "run1" / "train"
    folder.mkdir(parents=True)
    (folder / source.name).write_bytes(source.read_bytes())
    (warning,) = read(tmp_path / "run1").warnings()
    assert warning.startswith(f"run1/train/{source.name}: ")


@pytest.mark.parametrize("name", ["cut_data", "cut_length"])
def test_whole_records_of_a_cut_visualdl_log_are_read(name: str) -> None:
    assert values(read(VISUALDL / name), "x") == EXPECTED["visualdl"][name]["x"]


def test_a_damaged_visualdl_log_continues_at_the_next_record(tmp_path: Path) -> None:
    whole = next((VISUALDL / "restart").glob("*000.log")).read_bytes()
    frames = split_frames(whole, "visualdl")
    at = int(frames.start[3]) - 8
    (tmp_path / "vdlrecords.1.log").write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
    data = read(tmp_path)
    assert [step for step, _ in values(data, "x")] == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert "the length of a record is damaged" in data.warnings()[0]


@pytest.mark.parametrize("writer", ["tensorboard", "visualdl"])
def test_a_growing_file_is_continued_after_the_last_whole_record(writer: str, tmp_path: Path) -> None:
    source = next((SAMPLES / writer / "restart").iterdir())
    whole = sorted((SAMPLES / writer / "restart").iterdir())[0].read_bytes()
    target, data = tmp_path / source.name, RunData()
    files = [DataFile("", str(target))]
    counts: list[int] = []
    for size in (0, 5, 40, *range(41, len(whole), 13), len(whole)):
        target.write_bytes(whole[:size])
        data.update(files)
        counts.append(sum(row.points for row in data.scalar_tags()))
    assert counts == sorted(counts)
    assert counts[-1] == 10
    assert data.warnings() == []
    assert [value for _, value in values(data, "x")] == list(range(10))


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    target, data = tmp_path / "a.tfevents.1", RunData()
    files = [DataFile("", str(target))]
    for numbers in ([1, 2, 3], [7, 8, 9, 10]):
        target.write_bytes(HEAD + b"".join(frame(event(n, n, wall_s=1.7e9 + numbers[0])) for n in numbers))
        data.update(files)
        assert [value for _, value in values(data, "x")] == numbers
    target.write_bytes(HEAD)
    data.update(files)
    assert data.scalar_tags() == []


def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "PIECE_BYTES", 256)
    records = [frame(event(step, step)) for step in range(40)]
    large = frame(event(100, 1.0, "large", more=field(9, bytes(5000))))
    (tmp_path / "a.tfevents.1").write_bytes(HEAD + b"".join([*records[:20], large, *records[20:]]))
    data = read(tmp_path)
    assert [value for _, value in values(data, "x")] == list(range(40))
    assert len(values(data, "large")) == 1
    slow = RunData()
    assert not slow.update(data_files(tmp_path), budget_s=0.0)
    for _ in range(50):
        if slow.update(data_files(tmp_path), budget_s=0.0):
            break
    assert [value for _, value in values(slow, "x")] == list(range(40))


HOSTILE = {
    "too long a size": struct.pack("<QI", 1 << 40, masked_crc(struct.pack("<Q", 1 << 40))),
    "negative size": struct.pack("<QI", (1 << 64) - 1, masked_crc(b"\xff" * 8)),
    "no message": frame(b"\xff" * 40),
    "group": frame(b"\x0b\x0b\x0b"),
    "summary of numbers": frame(b"\x28\x01"),
    "tag without bytes": frame(field(5, field(1, b"\x0a\x7f"))),
    "tag that is a number": frame(field(5, field(1, b"\x08\x01\x15\0\0\0\0"))),
    "long tag": frame(event(1, 1.0, "t" * 2000)),
    "tag that is not UTF-8": frame(field(5, field(1, field(1, b"\xff\xfe") + b"\x15\0\0\0\0"))),
    "time that is not finite": frame(event(1, 1.0, wall_s=math.nan)),
    "time far away": frame(event(1, 1.0, wall_s=1e300)),
    "largest step": frame(event((1 << 63) - 1, 1.0)),
    "tensor of impossible size": frame(
        field(5, field(1, field(1, b"t") + field(8, b"\x08\x01" + field(2, field(2, b"\x08" + varint(1 << 62))))))
    ),
    "zeros": bytes(4096),
    "noise": bytes(range(256)) * 64,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_neither_raise_nor_hide_the_others(name: str, tmp_path: Path) -> None:
    good = [frame(event(step, step, "good")) for step in range(3)]
    (tmp_path / "a.tfevents.1").write_bytes(HEAD + good[0] + HOSTILE[name] + good[1] + good[2])
    data = read(tmp_path)
    assert [value for _, value in values(data, "good")] == [0, 1, 2]
    for row in data.scalar_tags():
        assert row.last_wall_ns is None or row.last_wall_ns > 0
        assert all(part.points.wall_ns.min() >= UNKNOWN_NS for part in data.points(row.line, row.tag))


def test_a_file_of_only_damage_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "MAX_DAMAGES", 5)
    bad = bytearray(frame(event(1, 1.0, "bad")))
    bad[0] ^= 1
    (tmp_path / "a.tfevents.1").write_bytes(HEAD + (bytes(bad) + frame(event(1, 1.0))) * 10)
    data = read(tmp_path)
    assert "is too damaged: the rest of it is not read" in data.warnings()[0]


def test_files_of_other_formats_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.tfevents.1").write_bytes(
        b"this is a text of more than sixty-four bytes, which is no event file at all"
    )
    os.mkfifo(tmp_path / "b.tfevents.2")
    data = RunData()
    data.update([DataFile("", str(tmp_path / name)) for name in ("a.tfevents.1", "b.tfevents.2", "c.tfevents.3")])
    text = "\n".join(data.warnings())
    assert "a.tfevents.1 is neither an event file nor a VisualDL log" in text
    assert "b.tfevents.2 is not a regular file" in text
    assert "c.tfevents.3 cannot be read: No such file or directory" in text


@pytest.mark.parametrize("kind", ["tensorboard", "visualdl"])
def test_native_and_python_find_the_same_records_in_damaged_bytes(kind: framing.Kind) -> None:
    random = np.random.default_rng(5)
    folder = SAMPLES / kind / ("torch" if kind == "tensorboard" else "kinds")
    whole = next(path for path in folder.iterdir() if is_data_name(path.name)).read_bytes()
    for _ in range(15):
        data = bytearray(whole)
        for at in random.integers(0, len(data), 3).tolist():
            data[at] = int(random.integers(256))
        piece = bytes(data[: int(random.integers(len(data)))])
        expected = framing._split_frames(piece, kind)  # pyright: ignore[reportPrivateUsage]
        actual = split_frames(piece, kind)
        for left, right in zip(expected, actual, strict=True):
            np.testing.assert_array_equal(left, right)
        assert find_record(piece, max(len(piece) - 2000, 0), kind) >= -1


def test_simple_events_are_parsed_as_any_events() -> None:
    simple = 0
    for path in sorted(TENSORBOARD.rglob("*tfevents*")):
        raw = path.read_bytes()
        frames = split_frames(raw, "tensorboard")
        for first in range(0, len(frames.start), 5):  # so that few events share the way of an unusual one
            start, size = frames.start[first : first + 5], frames.size[first : first + 5]
            quick = events._parse_simple_events(raw, start, size)  # pyright: ignore[reportPrivateUsage]
            whole = events._parse_events(raw, start, size)  # pyright: ignore[reportPrivateUsage]
            if quick is None:
                continue
            simple += 1
            assert (quick.tags, quick.bounds.tolist()) == (whole.tags, whole.bounds.tolist())
            for name in ("step", "wall_ns", "tag", "field", "start", "size"):
                np.testing.assert_array_equal(getattr(quick.rows, name), getattr(whole.rows, name), name)
            is_plain = quick.rows.field != events.TENSOR
            np.testing.assert_array_equal(quick.rows.number[is_plain], whole.rows.number[is_plain])
            chosen = ~is_plain
            slow = events.tensor_scalars(raw, whole.rows, chosen)
            is_read = quick.rows.bits[chosen] > 0
            assert slow[1][is_read].all()
            np.testing.assert_array_equal(quick.rows.number[chosen][is_read], slow[0][is_read])
            np.testing.assert_array_equal(quick.rows.bits[chosen][is_read] == 64, slow[2][is_read])
    assert simple > 20 or events.function("vp_run_texts", None) is None


UNUSUAL = {
    "second tag": field(1, b"x") + field(1, b"y") + b"\x15\0\0\0\0",
    "two contents": field(1, b"x") + b"\x15\0\0\0\0" + field(8, b""),
    "no tag": b"\x15\0\0\0\0",
    "unknown field": field(1, b"x") + field(12, b"") + b"\x15\0\0\0\0",
    "cut value": b"\x0a\x05x",
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_events_take_the_general_way(name: str) -> None:
    raw = field(5, field(1, UNUSUAL[name]))
    start, size = np.array([0]), np.array([len(raw)])
    assert events._parse_simple_events(raw, start, size) is None  # pyright: ignore[reportPrivateUsage]
    assert events.parse_events(raw, start, size).damaged == int(name == "cut value")


def test_tensors_of_torch_with_32_bits_in_halves() -> None:
    (path,) = [path for path in (TENSORBOARD / "torch").iterdir() if is_data_name(path.name)]
    file = EventFile(str(path))
    file.update()
    raw = path.read_bytes()
    tags = [tag for tag, series in file.series.items() if series.plugin == "tensor"]
    assert len(tags) == 4
    for tag in tags:
        samples = file.series[tag].samples
        first, size = int(samples.start[0]), int(samples.size[0])
        numbers = tensor_values(Message(raw[first : first + size]).message(events.TENSOR)).tolist()
        expected = EXPECTED["tensorboard"]["torch"]["tensor"]["value"]
        assert numbers in (expected, [math.trunc(number) for number in expected])


def test_folders_are_lines_of_the_run_above_them() -> None:
    listed: Sequence[tuple[str, str]] = [
        ("", "/l/tfevents.0"),
        ("a", "/l/a/tfevents.1"),
        ("a/train", "/l/a/train/tfevents.2"),
        ("a/x/y", "/l/a/x/y/tfevents.3"),
        ("b/c", "/l/b/c/tfevents.4"),
        ("p/valid", "/l/p/valid/tfevents.5"),
    ]
    lines: dict[str, Any] = {run: [file.line for file in files] for run, files in group_by_run(listed, {"p"}).items()}
    assert lines == {"": [""], "a": ["", "train", "x/y"], "b/c": [""], "p": ["valid"]}
    assert is_data_name("events.out.tfevents.1.host")
    assert not is_data_name("events.out.tfevents.1.host.profile-empty")


def test_every_sample_parses_without_damaged_messages() -> None:
    for path in SAMPLES.rglob("*tfevents*"):
        raw = path.read_bytes()
        frames = split_frames(raw, "tensorboard")
        rows = frames.is_valid
        _, damaged = parse_fields(raw, frames.start[rows], (frames.start + frames.size)[rows])
        assert damaged == 0


@pytest.mark.slow
def test_a_thousand_lines_and_ten_thousand_tags_take_seconds(tmp_path: Path) -> None:
    files: list[DataFile] = []
    for line in range(1000):
        path = tmp_path / f"{line}.tfevents.1"
        path.write_bytes(HEAD + b"".join(frame(event(1, 1.0, f"tag{tag}")) for tag in range(3)))
        files.append(DataFile(f"line{line}", str(path)))
    wide = tmp_path / "wide.tfevents.1"
    wide.write_bytes(HEAD + b"".join(frame(event(1, 1.0, f"wide{tag}")) for tag in range(10_000)))
    data, before = RunData(), time.process_time()
    data.update([*files, DataFile("", str(wide))])
    assert len(data.scalar_tags()) == 13_000
    assert len(data.scalar_tags()) == 13_000
    assert time.process_time() - before < 20
