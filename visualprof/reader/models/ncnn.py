"""ncnn (`.param`): one line per layer with type, name, blobs and settings. The `.bin` next to it has the weights.

A line is `type name inputs outputs blob ... key=value ...`, where an array is `-23300-key=count,value,...`. Number and
size of a layer's weights follow from its settings, the precision of each weight from a tag in the `.bin`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from visualprof.messages import msg
from visualprof.reader.graph import MAX_ELEMENTS, ModelBuilder, ModelGraph, Node, Value, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.source import Source

MAGIC = b"7767517"
MAX_BYTES = 1 << 30
MAX_BLOBS = 100_000
MAX_SETTING_CHARS = 200
INPUT_TYPE = "Input"
ARRAY_KEY, SHAPES_KEY = -23300, 30
# Types in the `.bin` by the tag in front of a weight.
TAGS = {0: "float32", 0x01306B47: "float16", 0x000D4B38: "int8", 0x0002C056: "float32"}
CONVOLUTION_TYPES = (
    "Convolution ConvolutionDepthWise Deconvolution DeconvolutionDepthWise Convolution1D ConvolutionDepthWise1D "
    "Deconvolution1D DeconvolutionDepthWise1D Convolution3D ConvolutionDepthWise3D Deconvolution3D "
    "DeconvolutionDepthWise3D"
).split()
UNKNOWN_WEIGHTS = ("MultiHeadAttention", "Gemm", "DeformableConv2D", "LSTM", "GRU", "RNN", "SDPA")
# Layers with a tagged weight: keys of its elements and of the bias, of `num_output` elements. Key 8 means int8 scales.
TAGGED_WEIGHTS = dict.fromkeys(CONVOLUTION_TYPES, (6, 5)) | {"InnerProduct": (2, 1), "Embed": (3, 2)}
INT8_KEY = 8
# Layers with float32 weights: key of their elements, number of weights, and key and default of whether they exist.
PLAIN_WEIGHTS = {
    "BatchNorm": (0, 4, 0, 1),
    "Scale": (0, 1, 0, 0),
    "PReLU": (0, 1, 0, 0),
    "Bias": (0, 1, 0, 0),
    "LayerNorm": (0, 2, 2, 1),
    "InstanceNorm": (0, 2, 2, 1),
    "GroupNorm": (1, 2, 3, 1),
}
CONVOLUTION_SETTINGS = {
    0: "num_output",
    1: "kernel_w",
    2: "dilation_w",
    3: "stride_w",
    4: "pad_left",
    7: "group",
    9: "activation",
}
SETTING_NAMES = dict.fromkeys(CONVOLUTION_TYPES, CONVOLUTION_SETTINGS) | {
    "InnerProduct": {0: "num_output", 9: "activation"},
    "Pooling": {0: "type", 1: "kernel_w", 2: "stride_w", 3: "pad_left", 4: "global"},
}
_Settings = Mapping[int, str]


def sniff(head: bytes) -> bool:
    """Return whether the first line is the number of the text format."""
    return head.split(b"\n", 1)[0].strip() == MAGIC


def read(source: Source) -> ModelGraph:
    """Read the layers, and the precisions of weights if the `.bin` is there."""
    data = source.read_all(
        MAX_BYTES, msg("models.ncnn_model", "an ncnn model"), msg("models.one", "check that this is the right file")
    )
    lines = [line.split() for line in data.decode("utf-8", "replace").splitlines()[1:] if line.strip()]
    counts = [_integer(text) for text in lines[0]] if lines else []
    if len(counts) != 2 or counts[0] != len(lines) - 1:
        stated = f"{counts[0]:,}" if counts else "?"
        raise _damaged(source, msg("models.ncnn_layers", f"{stated} layers expected, {len(lines[1:]):,} found"))
    builder = ModelBuilder(source.name, "ncnn")
    builder.producer = "ncnn"
    reader = _LayerReader(builder, _WeightFile(builder, source.path.with_suffix(".bin")))
    for number, words in enumerate(lines[1:], 3):
        if not reader.add(words):
            raise _damaged(source, msg("models.ncnn_line", f"line {number} is not a layer"))
    reader.finish()
    if not data.endswith(b"\n"):
        builder.warn(msg("models.ncnn_no_end", "the last line has no line break: the file may be incomplete"))
    return builder.build()


def _damaged(source: Source, problem: str) -> Exception:
    return source.error(
        msg("models.damaged_ncnn_model", f"damaged ncnn model ({problem})"),
        msg("models.cut_while_being_copied", "was it cut while being copied?"),
    )


def _integer(text: str) -> int:
    """Return a number, -1 for any other text."""
    return int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 19 else -1


class _WeightFile:
    """The weights in the order of the layers; only their tags are read."""

    def __init__(self, builder: ModelBuilder, path: Path) -> None:
        self._builder = builder
        self._source = Source(path) if path.is_file() else None
        self._offset = 0

    def describe(self, weights: Sequence[Value]) -> list[Value]:
        """Return the weights of a layer with type and size; without a file, the type of a tagged weight is unknown."""
        described: list[Value] = []
        for weight in weights:
            dtype = weight.dtype or self._read_tag()
            size = tensor_bytes(dtype, weight.shape) if dtype else -1
            self.skip(size)
            described.append(replace(weight, dtype=dtype, bytes=size))
        return described

    def skip(self, size: int) -> None:
        """Advance by a weight, which is padded to 4 bytes; nothing is known behind a weight of unknown size."""
        if size < 0:
            self._source = None
        self._offset += (size + 3) // 4 * 4

    def check_end(self) -> None:
        """Warn if the file has another size than the weights of the layers."""
        if self._source is not None and self._source.size != self._offset:
            self._builder.warn(
                msg(
                    "models.ncnn_bin_size",
                    f"{self._source.name} has {self._source.size:,} bytes, but the layers need {self._offset:,}",
                )
            )

    def _read_tag(self) -> str:
        if self._source is None:
            return ""
        with open(self._source.path, "rb") as file:
            file.seek(self._offset)
            tag = int.from_bytes(file.read(4), "little")
        self._offset += 4
        return TAGS.get(tag, "")


class _LayerReader:
    """Adds layers to a graph."""

    def __init__(self, builder: ModelBuilder, file: _WeightFile) -> None:
        self._builder = builder
        self._file = file
        self._rows: dict[str, int] = {}
        self._unread: dict[str, int] = {}

    def add(self, words: Sequence[str]) -> bool:
        """Add a layer, and return whether its line is valid."""
        counts = [_integer(text) for text in words[2:4]]
        if len(counts) < 2 or not 0 <= min(counts) <= max(counts) <= MAX_BLOBS or len(words) < 4 + sum(counts):
            return False
        kind, name = words[:2]
        inputs, outputs = words[4 : 4 + counts[0]], words[4 + counts[0] : 4 + sum(counts)]
        settings = dict(_settings(words[4 + sum(counts) :]))
        read = [self._row(blob) for blob in inputs]
        for blob in inputs:
            self._unread.pop(blob, None)
        read += self._add_weights(kind, name, settings)
        shapes = list(_shapes(settings.get(SHAPES_KEY, "")))
        if kind == INPUT_TYPE:
            shapes = shapes or [_shape(settings)]
        written: list[int] = []
        for number, blob in enumerate(outputs):
            shape = shapes[number] if number < len(shapes) else None
            written.append(self._builder.value(Value(blob, "", shape)))
            self._rows[blob] = self._unread[blob] = written[-1]
        is_input = kind == INPUT_TYPE
        self._builder.node(
            Node(
                name,
                kind,
                kind="input" if is_input else "operator",
                inputs=tuple(read),
                outputs=tuple(written),
                attributes={} if is_input else _attributes(kind, settings),
                placed=False,
            )
        )
        return True

    def finish(self) -> None:
        """Add the blobs that no layer reads as outputs."""
        for blob, row in self._unread.items():
            self._builder.node(Node(blob, "Output", kind="output", inputs=(row,)))
        self._file.check_end()

    def _row(self, blob: str) -> int:
        if blob not in self._rows:
            self._rows[blob] = self._builder.value(Value(blob))
        return self._rows[blob]

    def _add_weights(self, kind: str, name: str, settings: _Settings) -> list[int]:
        rows: list[int] = []
        for value in self._file.describe(list(_weights(kind, name, settings))):
            rows.append(self._builder.value(value))
            self._builder.node(Node(value.name, "Constant", kind="constant", outputs=(rows[-1],), placed=False))
        return rows


def _settings(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield key and value of each setting, an array without its number of values."""
    for word in words:
        text, _, value = word.partition("=")
        key = _integer(text)
        if key <= ARRAY_KEY:
            yield ARRAY_KEY - key, value.partition(",")[2]
        elif key >= 0 and value:
            yield key, value


def _weights(kind: str, name: str, settings: _Settings) -> Iterator[Value]:
    """Yield the weights of a layer in the order of the `.bin`; an empty type is stated there."""

    def number(key: int, default: int = 0) -> int:
        size = _integer(settings.get(key, str(default)))
        return size if 0 <= size <= MAX_ELEMENTS else 0

    if kind in TAGGED_WEIGHTS and not (kind != "Embed" and number(INT8_KEY)):
        elements, bias = TAGGED_WEIGHTS[kind]
        yield Value(f"{name}/weight", "", (number(elements),))
        if number(bias):
            yield Value(f"{name}/bias", "float32", (number(0),))
    elif kind in TAGGED_WEIGHTS or kind in UNKNOWN_WEIGHTS:
        yield Value(f"{name}/weights", "", None)
    elif kind == "MemoryData":
        yield Value(f"{name}/data", "float32" if number(21, 1) else "", _shape(settings))
    elif kind in PLAIN_WEIGHTS:
        elements, count, key, default = PLAIN_WEIGHTS[kind]
        count += kind == "Scale" and number(1) > 0
        for position in range(count if number(key, default) else 0):
            yield Value(f"{name}/{position}", "float32", (number(elements),))


def _shape(settings: _Settings) -> tuple[int, ...] | None:
    """Return the shape in the settings of a layer, outermost dimension first, or `None`."""
    sizes = [_integer(settings.get(key, "0")) for key in (2, 11, 1, 0)]
    return tuple(size for size in sizes if size > 0) or None


def _shapes(text: str) -> Iterator[tuple[int, ...] | None]:
    """Yield the shapes of outputs: number of dimensions, width, height and channels of each."""
    numbers = [_integer(part) for part in text.split(",")] if text else []
    for dimensions, width, height, channels in zip(*[iter(numbers)] * 4, strict=False):
        sizes = {1: (width,), 2: (height, width), 3: (channels, height, width)}.get(dimensions)
        yield sizes if sizes and min(sizes) >= 0 else None


def _attributes(kind: str, settings: _Settings) -> dict[str, str]:
    names = SETTING_NAMES.get(kind, {})
    return {names.get(key, str(key)): text[:MAX_SETTING_CHARS] for key, text in settings.items() if key != SHAPES_KEY}


MODEL = ModelFormat("ncnn", "ncnn .param", 23, sniff, read, shared_suffixes=(".param",))
