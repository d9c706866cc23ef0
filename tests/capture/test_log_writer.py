"""LogWriter: what the reader, and TensorBoard where it is installed, find in its files."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
import wave
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from visualprof.capture import LogWriter
from visualprof.capture.log import stream as streams
from visualprof.capture.log.crc32c import masked_crc
from visualprof.capture.log.images import arrange, png, to_many_pixels, to_pixels
from visualprof.capture.log.scalars import ScalarEncoder
from visualprof.capture.options import CaptureError, CaptureWarning
from visualprof.reader.protobuf import Message
from visualprof.reader.run_data import crc32c, events
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.folders import DataFile, is_data_name
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.tensors import tensor_values


def read(folder: Path) -> RunData:
    """Return the run data of a folder, which must be undamaged."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and is_data_name(path.name)]
    names = [("" if path.parent == folder else str(path.parent.relative_to(folder)), str(path)) for path in paths]
    data = RunData()
    assert data.update([DataFile(line, path) for line, path in names])
    assert data.warnings() == []
    return data


def points(folder: Path, tag: str, line: str = "") -> list[tuple[int, float]]:
    (joined,) = read(folder).points(line, tag)
    return list(zip(joined.points.step.tolist(), joined.points.value.tolist(), strict=True))


def sample(folder: Path, tag: str) -> tuple[str, Message]:
    """Return the plugin and the message of the only value of a tag."""
    (path,) = [path for path in folder.iterdir() if is_data_name(path.name)]
    file = EventFile(str(path))
    file.update()
    series = file.series[tag]
    first, size = int(series.samples.start[0]), int(series.samples.size[0])
    return series.plugin, Message(path.read_bytes()[first : first + size])


def double(message: Message, field: int) -> float:
    return next(message.reals(field, 8), 0.0)


def pixels_of(data: bytes | memoryview) -> Any:
    """Decode a PNG of this writer: filter 1, no interlacing."""
    width, height, _, color = struct.unpack_from(">IIBB", data, 16)
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    (size,) = struct.unpack_from(">I", data, 33)
    assert zlib.crc32(data[37 : 41 + size]) == struct.unpack_from(">I", data, 41 + size)[0]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(height, 1 + width * channels)
    assert set(rows[:, 0].tolist()) == {1}
    return rows[:, 1:].reshape(height, width, channels).cumsum(1, dtype=np.uint8)


def test_scalars_are_read_back(tmp_path: Path) -> None:
    values = [0.5, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e300, 3, np.float64(0.25), np.array([7.0])]
    with LogWriter(tmp_path) as writer:
        for step, value in enumerate(values):
            writer.add_scalar("loss/a", value, step * 1000, 1.8e9 + step)
        writer.add_scalar(tag="negative", scalar_value=1, global_step=-5, walltime=1.8e12)
        writer.add_scalar("double", 0.1, 3, double_precision=True)
        writer.add_scalars("both", {"sin": 0.0, "cos": 1.0}, 7)
    expected = [np.float32(np.inf) if value == 1e300 else np.float32(np.asarray(value).item()) for value in values]
    np.testing.assert_array_equal([value for _, value in points(tmp_path, "loss/a")], expected)
    assert [step for step, _ in points(tmp_path, "loss/a")] == [step * 1000 for step in range(len(values))]
    assert points(tmp_path, "double") == [(3, 0.1)]
    assert points(tmp_path, "both/cos") == [(7, 1.0)]
    (joined,) = read(tmp_path).points("", "negative")
    assert (joined.points.step.tolist(), joined.points.wall_ns.tolist()) == ([-5], [18 * 10**17])


def test_without_a_step_scalars_are_counted_per_tag(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        for value in (1.0, 2.0, 3.0):
            writer.add_scalar("a", value)
        writer.add_scalar("b", 1.0, 10)
        writer.add_scalar("b", 2.0)
    assert points(tmp_path, "a") == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert points(tmp_path, "b") == [(10, 1.0), (11, 2.0)]


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 1001])
def test_checksums_equal_those_of_the_reader(size: int) -> None:
    data = bytes(i * 7 & 255 for i in range(size))
    assert masked_crc(data) == crc32c.masked_crc(data)
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_long_tags_have_lengths_of_several_bytes() -> None:
    for length in (1, 110, 127, 128, 20_000):
        record = ScalarEncoder().encode("t" * length, 1.5, 300, 1.8e9)
        message = Message(record[12:-4]).message(5).message(1)
        assert (message.text(1), message.real(2)) == ("t" * length, 1.5)


def test_images_of_both_layouts_and_ranges(tmp_path: Path) -> None:
    image = np.arange(30, dtype=np.uint8).reshape(2, 5, 3)
    expected = {
        "hwc": image,
        "chw": image.transpose(2, 0, 1),
        "unit": image / np.float32(255),
        "large": image.astype(np.float64),
        "int": image.astype(np.int64),
    }
    with LogWriter(tmp_path) as writer:
        for tag, array in expected.items():
            writer.add_image(tag, array, 3)
        writer.add_image("named", image.transpose(1, 0, 2), 3, dataformats="WHC")
        writer.add_image("mask", np.array([[True, False]]), 3)
        writer.add_images("many", np.stack([image] * 9), 3, dataformats="NHWC")
        writer.add_image_matrix("matrix", np.stack([image] * 3), 3, rows=3)
    for tag in (*expected, "named"):
        message = sample(tmp_path, tag)[1].message(events.IMAGE)
        assert [message.number(i) for i in (1, 2, 3)] == [2, 5, 3]
        assert abs(pixels_of(message.content(4)).astype(int) - image).max() <= (1 if tag == "unit" else 0)
    assert pixels_of(sample(tmp_path, "mask")[1].message(4).content(4)).tolist() == [[[255], [0]]]
    many = sample(tmp_path, "many")[1].message(events.IMAGE)
    assert [many.number(i) for i in (1, 2, 3)] == [4, 40, 3]
    assert [sample(tmp_path, "matrix")[1].message(4).number(i) for i in (1, 2)] == [6, 5]


def test_a_png_keeps_every_pixel() -> None:
    random = np.random.default_rng(3)
    for channels in (1, 2, 3, 4):
        pixels = random.integers(0, 256, (5, 7, channels), np.uint8)
        np.testing.assert_array_equal(pixels_of(png(pixels)), pixels)
    grid = arrange(to_many_pixels(random.integers(0, 256, (3, 2, 2, 1), np.uint8)), 2)
    assert grid.shape == (4, 4, 1)
    with pytest.raises(ValueError, match="1 to 4 channels"):
        to_pixels(np.zeros((5, 5, 7)))


def test_an_array_may_change_after_it_was_logged(tmp_path: Path) -> None:
    image = np.zeros((2, 2, 1), np.uint8)
    with LogWriter(tmp_path) as writer:
        writer.add_image("a", image, 0)
        image += 9
    assert pixels_of(sample(tmp_path, "a")[1].message(4).content(4)).max() == 0


def test_sound(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.add_audio("a", np.array([0.0, 0.5, -1.0, 2.0]), 0, sample_rate=100)
        writer.add_audio("stereo", np.zeros((2, 50), np.int16), 0)
    message = sample(tmp_path, "a")[1].message(events.AUDIO)
    assert (message.real(1), message.number(2), message.number(3)) == (100.0, 1, 4)
    with wave.open(io.BytesIO(message.content(4))) as file:
        assert np.frombuffer(file.readframes(9), "<i2").tolist() == [0, 16383, -32767, 32767]
    stereo = sample(tmp_path, "stereo")[1].message(events.AUDIO)
    assert (stereo.real(1), stereo.number(2), stereo.number(3)) == (8000.0, 2, 50)


def test_histograms(tmp_path: Path) -> None:
    values = np.array([1.0, 1.0, -2.0, 0.0, math.nan])
    with LogWriter(tmp_path) as writer:
        writer.add_histogram("a", values, 0)
        writer.add_histogram("b", values, 0, buckets=3)
    message = sample(tmp_path, "a")[1].message(events.HISTOGRAM)
    assert [double(message, i) for i in range(1, 6)] == [-2.0, 1.0, 4.0, 0.0, 6.0]
    limits, counts = list(message.reals(6, 8)), list(message.reals(7, 8))
    assert len(limits) == len(counts)
    assert sum(counts) == 4
    for value, count in ((-2.0, 1), (0.0, 1), (1.0, 2)):
        bucket = next(i for i, limit in enumerate(limits) if limit > value)
        assert counts[bucket] == count
    equal = sample(tmp_path, "b")[1].message(events.HISTOGRAM)
    assert (list(equal.reals(6, 8)), list(equal.reals(7, 8))) == ([-2, -1, 0, 1], [0, 1, 0, 3])


def test_curves_have_counts_by_threshold(tmp_path: Path) -> None:
    labels, scores = [0, 1, 1, 0], [0.1, 0.4, 0.9, 0.6]
    with LogWriter(tmp_path) as writer:
        writer.add_pr_curve("pr", np.array(labels), np.array(scores), 0, num_thresholds=3)
        writer.add_roc_curve("roc", np.array(labels), np.array(scores), 0, num_thresholds=3)
    for tag, plugin in (("pr", "pr_curves"), ("roc", "roc_curves")):
        name, value = sample(tmp_path, tag)
        rows = tensor_values(value.message(events.TENSOR)).reshape(6, 3)
        assert name == plugin
        for row, threshold in enumerate((0.0, 0.5, 1.0)):  # counted by hand: a score at a threshold is positive
            positive = [score >= threshold for score in scores]
            pairs = list(zip(positive, labels, strict=True))
            counts = [pairs.count(pair) for pair in ((True, 1), (True, 0), (False, 0), (False, 1))]
            assert rows[:4, row].tolist() == counts
    rates = tensor_values(sample(tmp_path, "roc")[1].message(events.TENSOR)).reshape(6, 3)[4:]
    np.testing.assert_allclose(rates, [[1, 0.5, 0], [1, 0.5, 0]])


def test_texts_and_layouts(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.add_text("note", "**bold** 你好", 0)
        writer.add_custom_scalars({"loss": {"both": ["Multiline", ["a", "b"]], "band": ["Margin", ["m", "l", "u"]]}})
    plugin, value = sample(tmp_path, "note/text_summary")
    assert (plugin, value.message(events.TENSOR).text(8)) == ("text", "**bold** 你好")
    layout = Message(sample(tmp_path, "custom_scalars__config__")[1].message(events.TENSOR).content(8))
    first, second = layout.message(2).messages(2)
    assert [first.text(1), *first.message(2).texts(1)] == ["both", "a", "b"]
    assert [second.message(3).message(1).text(i) for i in (1, 2, 3)] == ["m", "l", "u"]


def test_hyper_parameters_are_in_the_file_of_the_run(tmp_path: Path) -> None:
    parameters = {"lr": np.float32(0.5), "batch": 8, "amp": True, "name": "adam", "none": None, "list": [1]}
    with LogWriter(tmp_path) as writer:
        writer.add_scalar("accuracy", 0.5, 10)
        writer.add_hparams(parameters, {"accuracy": 0.75})
        writer.add_hparams({"lr": 1.0}, ["accuracy"])
        writer.add_hparams({"lr": 2.0}, {"accuracy": 0.25}, run_name="named")
    assert points(tmp_path, "accuracy") == [(10, 0.75)]
    assert points(tmp_path, "accuracy", "named") == [(0, 0.25)]
    assert len(list((tmp_path / "trial2").iterdir())) == 1
    (path,) = [path for path in tmp_path.iterdir() if is_data_name(path.name)]
    file = EventFile(str(path))
    file.update()
    start = Message(file.series["_hparams_/session_start_info"].content).message(3)
    pairs = {pair.text(1): pair.message(2) for pair in start.messages(1)}
    assert {name: (double(value, 2), value.number(4), value.text(3)) for name, value in pairs.items()} == {
        "lr": (0.5, 0, ""),
        "batch": (8.0, 0, ""),
        "amp": (0.0, 1, ""),
        "name": (0.0, 0, "adam"),
        "list": (0.0, 0, "[1]"),
    }


def test_embeddings_are_files_of_the_projector(tmp_path: Path) -> None:
    vectors = np.array([[1.0, 0.5], [2.0, 0.25]])
    with LogWriter(tmp_path) as writer:
        for _ in range(2):
            writer.add_embedding(vectors, ["a", "b\tc"], np.zeros((2, 3, 4, 4)), 7, "space/x")
        writer.add_embeddings("columns", vectors.tolist(), [["a", "b"], ["1", "2"]], ["letter", "digit"])
    folder = tmp_path / "00007" / "space%2Fx"
    assert (folder / "tensors.tsv").read_text() == "1.0\t0.5\n2.0\t0.25\n"
    assert (folder / "metadata.tsv").read_text() == "a\nb c\n"
    assert pixels_of((folder / "sprite.png").read_bytes()).shape == (4, 8, 3)
    assert (tmp_path / "00000" / "columns" / "metadata.tsv").read_text() == "letter\tdigit\na\t1\nb\t2\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2
    assert 'tensor_path: "00007/space%2Fx/tensors.tsv"' in config


def test_figures_are_drawn_by_themselves(tmp_path: Path) -> None:
    data = png(np.zeros((2, 3, 4), np.uint8))
    figure = SimpleNamespace(savefig=lambda out, format: out.write(data) if format == "png" else None)
    with LogWriter(tmp_path) as writer:
        writer.add_figure("f", figure, 1)
    image = sample(tmp_path, "f")[1].message(events.IMAGE)
    assert ([image.number(i) for i in (1, 2)], image.content(4)) == ([2, 3], data)


def test_errors_of_values_are_warnings(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        for call in (
            lambda: writer.add_scalar("a", "text", 0),
            lambda: writer.add_scalar("a", np.zeros(3), 0),
            lambda: writer.add_histogram("a", [], 0),
            lambda: writer.add_image("a", np.zeros((5, 5, 9)), 0),
            lambda: writer.add_image_matrix("a", np.zeros((1, 2, 2, 3)), 0, scale=2.0),
            lambda: writer.add_audio("a", np.zeros((20, 20)), 0),
            lambda: writer.add_pr_curve("a", [1], [0.5, 0.5], 0),
            lambda: writer.add_embedding(np.zeros((2, 2)), ["a"]),
            lambda: writer.add_graph(object(), None),
            lambda: writer.add_custom_scalars({"a": {"b": ["Pie", []]}}),
        ):
            with pytest.warns(CaptureWarning, match="logged nothing"):
                call()
    assert read(tmp_path).scalar_tags() == []


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="LogWriter cannot write into"):
        LogWriter(tmp_path / "file")


def test_nothing_is_written_on_request(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "run", write_to_disk=False) as writer:
        writer.add_scalar("a", 1.0, 0)
        writer.add_image("a", np.zeros((2, 2)), 0)
        writer.add_hparams({"a": 1}, {"b": 1.0})
        assert writer.file_name == ""
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_replaces_the_points_from_its_step(tmp_path: Path) -> None:
    for purge_step, value, steps in ((None, 1.0, range(5)), (3, 2.0, range(3, 6))):
        with LogWriter(log_dir=tmp_path, purge_step=purge_step) as writer:
            for step in steps:
                writer.add_scalar("a", value, step, 1.8e9 + step)
    assert points(tmp_path, "a") == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)]


def test_a_closed_writer_continues_in_another_file(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, filename_suffix=".mine")
    writer.add_scalar("a", 1.0, 0)
    writer.close()
    writer.add_scalar("a", 2.0, 1)
    writer.close()
    assert points(tmp_path, "a") == [(0, 1.0), (1, 2.0)]
    assert [path.suffix for path in tmp_path.iterdir()] == [".mine", ".mine"]


def test_a_file_with_a_name_is_continued(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with LogWriter(tmp_path, file_name="vdlrecords.1.log") as writer:
            writer.add_scalar("a", value)
            assert writer.file_name.endswith("events.out.tfevents.vdlrecords.1.log")
    assert [value for _, value in points(tmp_path, "a")] == [2.0]
    assert len(list(tmp_path.iterdir())) == 1


def test_values_wait_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: Any) -> int:
        if is_full:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    is_full, real = False, os.write
    monkeypatch.setattr(streams.os, "write", write)
    monkeypatch.setattr(streams, "INTERVAL_S", 3600)
    writer = LogWriter(tmp_path)
    is_full = True
    writer.add_scalar("a", 1.0, 0)
    with pytest.warns(CaptureWarning, match="values cannot be written to .*: No space left on device"):
        writer.flush()
    monkeypatch.setattr(streams, "MAX_UNWRITTEN_BYTES", 60)
    writer.add_scalar("a", 2.0, 1)
    with pytest.warns(CaptureWarning, match="and were dropped"):
        writer.flush()
    writer.add_scalar("a", 3.0, 2)
    with pytest.warns(CaptureWarning, match="No space left"):
        writer.flush()
    is_full = False
    writer.close()
    assert points(tmp_path, "a") == [(2, 3.0)]


KILLED = """
    import sys, time
    from visualprof.capture import LogWriter
    writer = LogWriter(sys.argv[1])
    for step in range(100):
        writer.add_scalar("a", step, step)
    print("logged", flush=True)
    time.sleep(60)
"""
FORKED = """
    import os, sys
    from visualprof.capture import LogWriter
    writer = LogWriter(sys.argv[1])
    writer.add_scalar("parent", 1.0, 0)
    if not os.fork():
        writer.add_scalar("child", 2.0, 0)
        writer.flush()
        os._exit(0)
    os.wait()
    writer.add_scalar("parent", 3.0, 1)
"""


def test_a_killed_process_loses_at_most_a_second(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"logged\n"
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
    assert len(points(tmp_path, "a")) == 100


def test_a_forked_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(FORKED), str(tmp_path)], check=True)
    assert points(tmp_path, "parent") == [(0, 1.0), (1, 3.0)]
    assert points(tmp_path, "child") == [(0, 2.0)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_writer_that_is_dropped_writes_its_values(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.add_scalar("a", 1.0, 0)
    del writer
    assert points(tmp_path, "a") == [(0, 1.0)]


def test_scalars_need_no_numpy(tmp_path: Path) -> None:
    code = f"""
        import sys
        from visualprof.capture import LogWriter as SummaryWriter
        writer = SummaryWriter({str(tmp_path)!r})
        writer.add_scalar("a", 1.0, 0)
        writer.add_text("t", "text", 0)
        writer.add_hparams({{"lr": 0.1}}, {{"a": 2.0}})
        writer.close()
        assert "numpy" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    assert points(tmp_path, "a") == [(0, 2.0)]


@pytest.mark.slow
def test_a_scalar_costs_at_most_10_us(tmp_path: Path) -> None:
    count = 50_000
    writer = LogWriter(tmp_path)
    before = time.process_time()
    for step in range(count):
        writer.add_scalar("train/loss", 0.5, step)
    writer.close()
    assert (time.process_time() - before) / count < 10e-6
    assert len(points(tmp_path, "train/loss")) == count


@pytest.mark.slow
def test_torch_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with LogWriter(tmp_path) as writer:
        writer.add_scalar("a", torch.tensor(0.5, requires_grad=True), 0)
        writer.add_scalar("a", torch.tensor([0.25], dtype=torch.bfloat16), 1)
        writer.add_histogram("h", torch.ones(3, dtype=torch.bfloat16, requires_grad=True), 0)
        writer.add_image("i", torch.zeros(3, 4, 5), 0)
        writer.add_audio("s", torch.zeros(1, 10), 0)
    assert points(tmp_path, "a") == [(0, 0.5), (1, 0.25)]
    assert list(sample(tmp_path, "h")[1].message(events.HISTOGRAM).reals(3, 8)) == [3]
    assert [sample(tmp_path, "i")[1].message(events.IMAGE).number(i) for i in (1, 2, 3)] == [4, 5, 3]
    assert sample(tmp_path, "s")[1].message(events.AUDIO).real(1) == 44_100


def test_tensorboard_reads_the_same_values(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    with LogWriter(tmp_path) as writer:
        for step in range(50):
            writer.add_scalar("a", step / 3, step, 1.8e9 + step)
        writer.add_image("i", image, 4)
        writer.add_histogram("h", np.arange(10.0), 5)
        writer.add_audio("s", np.zeros(10), 6, 100)
        writer.add_text("t", "words", 7)
        writer.add_pr_curve("p", np.array([0, 1]), np.array([0.2, 0.8]), 8)
        writer.add_hparams({"lr": 0.5}, ["a"])
    reader = accumulators.EventAccumulator(str(tmp_path), {"scalars": 0, "tensors": 0, "images": 0})
    reader.Reload()
    assert [(e.step, e.wall_time, e.value) for e in reader.Scalars("a")] == [
        (step, 1.8e9 + step, float(np.float32(step / 3))) for step in range(50)
    ]
    assert json.dumps(sorted(reader.Tags()["tensors"])) == json.dumps(["p", "t/text_summary"])
    (shown,) = reader.Images("i")
    np.testing.assert_array_equal(pixels_of(shown.encoded_image_string), image)
    assert reader.Histograms("h")[0].histogram_value.num == 10
    assert reader.Audio("s")[0].sample_rate == 100
    assert reader.Tensors("t/text_summary")[0].tensor_proto.string_val[0] == b"words"
