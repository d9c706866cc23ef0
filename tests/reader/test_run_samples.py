"""Values other than scalars, compared with what was given to the writers (expected.json of the samples)."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.capture import LogWriter
from visualprof.cli._subjects import run_data_below
from visualprof.errors import FormatError, SourceError
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.run_data.curves import parse_curve
from visualprof.reader.run_data.embeddings import list_embeddings
from visualprof.reader.run_data.folders import DataFile, is_data_name
from visualprof.reader.run_data.histograms import parse_histogram
from visualprof.reader.run_data.kinds import SampleKind
from visualprof.reader.run_data.media import image_head, images_of, read_sound, sounds_of, texts_of
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import SampleSeries, StoredValue
from visualprof.reader.run_data.trials import list_trials

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data"
EXPECTED = {name: json.loads((SAMPLES / name / "expected.json").read_text()) for name in ("tensorboard", "visualdl")}
RUNS = [("tensorboard", "torch"), ("tensorboard", "tensorboardx"), ("visualdl", "kinds")]


def read(writer: str, run: str) -> RunData:
    folder, data = SAMPLES / writer / run, RunData()
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and is_data_name(path.name)]
    data.update([DataFile(str(path.parent.relative_to(folder)).removeprefix("."), str(path)) for path in paths])
    return data


def series(data: RunData, kind: SampleKind, tag: str) -> SampleSeries:
    (match,) = [each for each in data.samples((kind,)) if each.tag == tag]
    return match


def decode_png(content: memoryview) -> Any:
    """Return the pixels of a PNG, (height, width, channels), with the filters of the standard."""
    offset, body, (width, height, _, color) = 8, b"", struct.unpack_from(">IIBB", content, 16)
    while offset < len(content):
        size, name = struct.unpack_from(">I4s", content, offset)
        body += bytes(content[offset + 8 : offset + 8 + size]) if name == b"IDAT" else b""
        offset += 12 + size
    channels = {0: 1, 2: 3, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(body), np.uint8)
    raw = rows.astype(np.int64).reshape(height, 1 + width * channels)
    out = np.zeros((height, width * channels), np.int64)
    for row in range(height):
        for column in range(width * channels):
            left = out[row, column - channels] if column >= channels else 0
            up = out[row - 1, column] if row else 0
            corner = out[row - 1, column - channels] if row and column >= channels else 0
            estimate = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(estimate - value))
            added = (0, left, up, (left + up) // 2, nearest)[raw[row, 0]]
            out[row, column] = (raw[row, 1 + column] + added) % 256
    return out.reshape(height, width, channels)


@pytest.mark.parametrize(("writer", "run"), RUNS[:2])
def test_images_of_torch_and_tensorboardx(writer: str, run: str) -> None:
    picture = series(read(writer, run), "image", "picture")
    (media,) = picture.decode(0, images_of)
    expected = EXPECTED[writer][run]["image"]["picture"]
    assert picture.step.tolist() == [expected["step"]]
    assert image_head(media.content) == ("image/png", 6, 4)
    np.testing.assert_array_equal(decode_png(media.content), np.array(expected["chw"]).transpose(1, 2, 0))


def test_images_of_visualdl() -> None:
    picture = series(read("visualdl", "kinds"), "image", "picture")
    expected = EXPECTED["visualdl"]["kinds"]["image"]["picture"]
    assert picture.step.tolist() == expected["steps"]
    for row, step in enumerate(expected["steps"]):
        (media,) = picture.decode(row, images_of)
        given = np.array(expected["given"][str(step)])
        pixels = np.floor(given * np.float32(255)) if given.dtype.kind == "f" else given
        np.testing.assert_allclose(decode_png(media.content), pixels, atol=1)


def test_several_images_in_a_value() -> None:
    data = RunData()
    data.update([DataFile("", str(path)) for path in (SAMPLES / "tensorboard/tf2/train").iterdir()])
    images = series(data, "image", "picture").decode(0, images_of)
    assert [image_head(image.content)[1:] for image in images] == [(6, 4), (6, 4)]
    (sound,) = series(data, "audio", "tone").decode(0, sounds_of)
    assert sound.label
    assert series(data, "text", "table").decode(0, texts_of).rows == EXPECTED["tensorboard"]["tf2"]["text"]["table"]


@pytest.mark.parametrize(("writer", "run"), RUNS)
def test_sound(writer: str, run: str) -> None:
    expected = EXPECTED[writer][run]["audio"]["tone"]
    (media,) = series(read(writer, run), "audio", "tone").decode(0, sounds_of)
    sound = read_sound(media.content)
    assert (sound.rate_hz, sound.channels, sound.frames) == (expected["sample_rate"], 1, expected["frames"])
    np.testing.assert_allclose(sound.samples[:, 0] * 32768, expected["pcm16"], atol=2)


@pytest.mark.parametrize(("writer", "run"), RUNS)
def test_texts(writer: str, run: str) -> None:
    tag = "note" if writer == "visualdl" else "note/text_summary"
    grid = series(read(writer, run), "text", tag).decode(0, texts_of)
    assert (grid.rows, grid.is_cut) == ([[EXPECTED[writer][run]["text"]["note"]["text"]]], False)


@pytest.mark.parametrize(("writer", "run"), RUNS[:2])
def test_histograms_of_event_files(writer: str, run: str) -> None:
    data, expected = read(writer, run), EXPECTED[writer][run]["histogram"]
    normal = series(data, "histogram", "weights/w1").decode(0, parse_histogram)
    assert normal.counts.sum() == expected["weights/w1"]["num"]
    assert normal.edges[0] == pytest.approx(expected["weights/w1"]["min"])
    assert normal.edges[-1] == pytest.approx(expected["weights/w1"]["max"])
    raw = series(data, "histogram", "weights/raw").decode(0, parse_histogram)
    assert (raw.edges.tolist(), raw.counts.tolist()) == ([-1.0, 0.0, 1.0, 2.0], expected["weights/raw"]["counts"])


def test_histograms_of_visualdl_and_tensors() -> None:
    weights = series(read("visualdl", "kinds"), "histogram", "weights/w1")
    for row, step in enumerate((0, 10)):
        expected = EXPECTED["visualdl"]["kinds"]["histogram"]["weights/w1"][str(step)]
        histogram = weights.decode(row, parse_histogram)
        assert histogram.counts.tolist() == expected["counts"]
        assert histogram.edges.tolist() == pytest.approx(expected["edges"])
    tensor = series(read("tensorboard", "tf2"), "histogram", "weights").decode(0, parse_histogram)
    assert (tensor.edges.tolist(), tensor.counts.tolist()) == ([-1, 0, 1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("writer", "run", "kind"),
    [(*RUNS[0], "pr_curve"), (*RUNS[1], "pr_curve"), (*RUNS[2], "pr_curve"), (*RUNS[2], "roc_curve")],
)
def test_counts_of_curves(writer: str, run: str, kind: SampleKind) -> None:
    (curve,) = read(writer, run).samples((kind,))
    counts = curve.decode(0, parse_curve)
    expected = EXPECTED[writer][run][kind][curve.tag]
    assert curve.step.tolist() == [expected["step"]]
    assert [column.tolist() for column in counts[1:]] == [expected[name] for name in ("tp", "fp", "tn", "fn")]
    assert counts.threshold.tolist() == pytest.approx([k / 9 for k in range(10)])


def test_trials_of_all_writers() -> None:
    for run in ("torch", "tensorboardx"):
        (trial,) = list_trials(read("tensorboard", run))
        assert trial.settings | trial.metrics == EXPECTED["tensorboard"][run]["hparams"]["trial"]
        assert trial.line == "trial"
    for name, expected in EXPECTED["visualdl"]["hparams"].items():
        (trial,) = list_trials(read("visualdl", f"hparams/{name}"))
        last = {metric: pytest.approx(values[-1]) for metric, values in expected["metrics"].items()}
        assert (trial.settings, trial.metrics) == (expected["hparams"], last)


def test_sessions_of_an_experiment() -> None:
    trials = {trial.line: trial for trial in list_trials(read("tensorboard", "hparams"))}
    for line, expected in EXPECTED["tensorboard"]["hparams"].items():
        trial = trials[line]
        assert {"status": trial.status, **trial.settings} | trial.metrics == {
            name: pytest.approx(value) if isinstance(value, float) else value for name, value in expected.items()
        }


@pytest.mark.parametrize(("writer", "run"), RUNS)
def test_embeddings(writer: str, run: str) -> None:
    (source,) = list_embeddings(read(writer, run))
    key = "embeddings" if writer == "visualdl" else "embedding"
    expected, embedding = EXPECTED[writer][run][key]["space"], source.load()
    np.testing.assert_allclose(embedding.vectors, expected["vectors"], rtol=1e-6)
    labels = EXPECTED["visualdl"]["kinds"]["embeddings"]["space"]["labels"]  # the same for all writers
    assert (source.tag, embedding.header, embedding.labels) == ("space", expected["header"], labels)
    if source.sprite:
        assert [source.sprite.width, source.sprite.height] == expected["sprite"]


def test_a_projector_configuration_reads_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.tsv").write_text("1\t2\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / "link.tsv").symlink_to(tmp_path / "secret.tsv")
    names = ("../secret.tsv", str(tmp_path / "secret.tsv"), "link.tsv", "none.tsv")
    config = "".join(f'embeddings {{ tensor_name: "a" tensor_path: "{name}" }}\n' for name in names)
    (run / "projector_config.pbtxt").write_text(config)
    data = RunData()
    data.update([DataFile("", str(run / "events.out.tfevents.1"))])
    assert list_embeddings(data) == []


def test_names_with_escaped_characters(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.add_embedding(np.eye(3), ["x", "y", "z"], tag='é "1"\\')
        with (tmp_path / "projector_config.pbtxt").open("a") as config:
            config.write('embeddings { tensor_name: "null" tensor_path: "a\\000b" }')
    (source,) = list_embeddings(run_data_below(str(tmp_path)))
    assert (source.tag, source.step) == ('é "1"\\', 0)


def test_damaged_vectors_are_errors(tmp_path: Path) -> None:
    (tmp_path / "projector_config.pbtxt").write_text('embeddings { tensor_name: "a:00003" tensor_path: "t.tsv" }')
    data = RunData()
    data.update([DataFile("", str(tmp_path / "events.out.tfevents.1"))])
    for content, error in (("1\t2\n3\n", "t.tsv: the vectors have different sizes"), ("a\tb\n", "t.tsv has a value")):
        (tmp_path / "t.tsv").write_text(content)
        (source,) = list_embeddings(data)
        assert (source.tag, source.step) == ("a", 3)
        with pytest.raises(FormatError, match=error):
            source.load()


def test_the_last_value_at_or_before_a_step_is_read() -> None:
    picture = series(read("visualdl", "kinds"), "image", "picture")
    assert [picture.row_at(step) for step in (None, 10, 9, 5, 0, -1)] == [2, 2, 1, 1, 0, 0]


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    source = next((SAMPLES / "visualdl/kinds").iterdir())
    path = tmp_path / "vdlrecords.1.log"
    path.write_bytes(source.read_bytes())
    data = RunData()
    data.update([DataFile("", str(path))])
    picture = series(data, "image", "picture")
    path.write_bytes(bytes(len(source.read_bytes())))
    with pytest.raises(SourceError, match=r"vdlrecords.1.log was replaced while it was read"):
        picture.decode(0, images_of)
    path.unlink()
    with pytest.raises(SourceError, match=r"vdlrecords.1.log cannot be read"):
        picture.decode(0, images_of)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 70_000, 3), ("image/png", 70_000, 3)),
        (b"GIF89a" + struct.pack("<HH", 5, 6), ("image/gif", 5, 6)),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08" + struct.pack(">HH", 7, 8), ("image/jpeg", 8, 7)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x01\0\0\x02\0\0", ("image/webp", 2, 3)),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 3 | 4 << 14), ("image/webp", 4, 5)),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 9, 10), ("image/webp", 9, 10)),
    ],
)
def test_the_size_of_an_image_is_in_its_head(head: bytes, expected: tuple[str, int, int]) -> None:
    assert image_head(memoryview(head)) == expected


@pytest.mark.parametrize("content", [b"<svg onload='alert(1)'>", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"", b"GIF8"])
def test_other_media_are_not_images(content: bytes) -> None:
    with pytest.raises(FormatError, match="the value is not a PNG, JPEG, GIF or WebP image"):
        image_head(memoryview(content))


@pytest.mark.parametrize("content", [b"", b"RIFF\0\0\0\0WAVE", b"<html>"])
def test_other_media_are_not_sound(content: bytes) -> None:
    with pytest.raises(FormatError, match="the value is not a WAV file"):
        read_sound(memoryview(content))


def wave(encoding: int, channels: int, bits: int, data: bytes) -> memoryview:
    head = struct.pack("<HHIIHH", encoding, channels, 100, 0, 0, bits)
    return memoryview(
        b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", len(data)) + data
    )


@pytest.mark.parametrize(
    ("encoding", "bits", "data", "expected"),
    [
        (1, 8, bytes([0, 128]), [-1, 0]),
        (1, 16, struct.pack("<hh", -32768, 16384), [-1, 0.5]),
        (1, 24, b"\0\0\x80\0\0\x40", [-1, 0.5]),
        (1, 32, struct.pack("<ii", -(2**31), 2**30), [-1, 0.5]),
        (3, 32, struct.pack("<ff", -1, 0.5), [-1, 0.5]),
        (3, 64, struct.pack("<dd", -1, 0.5), [-1, 0.5]),
        (85, 8, b"mp3!", []),
    ],
)
def test_sound_of_every_width(encoding: int, bits: int, data: bytes, expected: list[float]) -> None:
    sound = read_sound(wave(encoding, 1, bits, data))
    assert sound.samples.ravel().tolist() == expected
    stereo = read_sound(wave(encoding, 2, bits, data))
    assert stereo.channels == 2


def histogram_value(edges: list[float], counts: list[float]) -> StoredValue:
    packed = b"".join(
        bytes([number << 3 | 2, 8 * len(values)]) + struct.pack(f"<{len(values)}d", *values)
        for number, values in ((1, counts), (2, edges))
    )
    return StoredValue("visualdl", 8, Message(packed))


@pytest.mark.parametrize(
    ("edges", "counts", "error"),
    [
        ([0, 1], [1, 2], "a histogram of 2 counts and 2 edges"),
        ([0, float("inf")], [1], "not finite"),
        ([0, 1], [-1], "not finite"),
        ([1, 0], [1], "not ascending"),
    ],
)
def test_impossible_histograms_are_errors(edges: list[float], counts: list[float], error: str) -> None:
    with pytest.raises(ProtobufError, match=error):
        parse_histogram(histogram_value(edges, counts))
