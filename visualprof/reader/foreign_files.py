"""Describe files that no reader knows: pointers, saved web pages, databases, weights and other formats.

Only the first bytes of a file are compared. The description becomes part of the error message for an unknown file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from visualprof.errors import UnknownFormat
from visualprof.messages import msg
from visualprof.reader.foreign_recordings import INSTRUMENTS, foreign_recording

MAX_NAMES = 8  # tables or keys that a message names
MAX_NAME_CHARS = 40
REPLACEMENT = "\ufffd".encode()  # what text tools write in place of bytes that are not text
MIN_REPLACEMENTS = 3
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
BLANKS = b" \t\r\n\xef\xbb\xbf"
SQLITE = b"SQLite format 3\x00"
PICKLE = re.compile(rb"\x80[\x02-\x05]")
PICKLE_SUFFIXES = (".pkl", ".pickle", ".p")  # others, such as .pt, are weights
_TABLE = re.compile(rb"CREATE (?:VIRTUAL )?TABLE\s+(?:IF NOT EXISTS\s+)?[\"'`\[]?(\w+)", re.IGNORECASE)
_KEY = re.compile(rb'[{,]\s*"((?:[^"\\]|\\.){1,200})"\s*:')
_LFS_SIZE = re.compile(rb"^size (\d{1,15})$", re.MULTILINE)
_TENSOR_FIELDS = re.compile(
    rb"(?:\x08.|\x08[\x80-\xff].){0,8}\x10[\x01-\x1c](?:\x42|\x4a|\x22|\x2a|\x3a|\x52|\x6a)", re.DOTALL
)


class Description(NamedTuple):
    """The description of a file.

    Attributes:
        text: Completes `this is ...`.
        hint: What to do; "" if there is nothing to do.
        is_mistake: Whether the file was stored instead of the intended file: a pointer, a web page, a file that a text
            tool rewrote. A log directory lists such a file as skipped.
        may_be_recording: Whether the file may contain a recording in an unsupported format: a database, a pickle. A log
            directory lists such a file as skipped, whatever its name.
    """

    text: str
    hint: str = ""
    is_mistake: bool = False
    may_be_recording: bool = False


def describe(name: str, head: bytes) -> Description | None:
    """Return the kind of a file by its name and its first bytes (512 or more, unpacked), or `None` if unknown."""
    return next((found for rule in _RULES if (found := rule(name, head))), None)


def unknown_format(name: str, head: bytes, problem: str, hint: str) -> UnknownFormat:
    """Return the error for a file that no format recognizes, with the kind of the file if known.

    Args:
        name: The file's name.
        head: The file's first bytes.
        problem: The problem, if nothing is known about the file.
        hint: The hint, if nothing is known about the file.
    """
    found = describe(name, head)
    if found is None:
        return UnknownFormat(problem, hint)
    return UnknownFormat(msg("reader.this_is", f"{problem}: this is {found.text}"), found.hint or hint)


def _pointer(name: str, head: bytes) -> Description | None:
    del name
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        size = _LFS_SIZE.search(head)
        text = (
            msg(
                "reader.git_lfs_pointer_size",
                f"a Git LFS pointer to a file of {int(size[1]):,} bytes, not the file itself",
            )
            if size
            else msg("reader.git_lfs_pointer", "a Git LFS pointer, not the file itself")
        )
        return Description(text, msg("reader.run_git_lfs_pull", "run `git lfs pull` in its repository"), True)
    if re.match(rb"(\.\./)*(\.git)?/annex/objects/", head):
        return Description(
            msg("reader.git_annex_pointer", "a git-annex pointer, not the file itself"),
            msg("reader.run_git_annex_get", "run `git annex get` in its repository"),
            True,
        )
    return None


def _web_page(name: str, head: bytes) -> Description | None:
    text = head.lstrip(BLANKS).lower()
    hint = msg("reader.download_file_itself", "download the file itself: the address led to a page, or to a login")
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script")):
        is_mistake = not name.lower().endswith((".html", ".htm", ".xhtml", ".svg"))
        return Description(msg("reader.saved_web_page", "a saved web page"), hint, is_mistake)
    if re.match(rb"(<\?xml[^>]*\?>\s*)?<error>\s*<code>", text):
        return Description(msg("reader.error_of_storage_server", "an error message of a storage server"), hint, True)
    return None


def _rewritten(name: str, head: bytes) -> Description | None:
    """Describe binary data that a tool converted as if it were text, and text that is not UTF-8."""
    del name
    hint = msg("reader.copy_original_binary", "copy the original again, in binary mode")
    if head.startswith(UTF16_MARKS):
        return Description(
            msg("reader.text_in_utf_16", "a text in UTF-16, as `>` of PowerShell writes"),
            msg("reader.save_as_utf_8", "save it as UTF-8"),
            True,
        )
    is_binary = re.search(rb"[\x00-\x08\x0e-\x1f]", head) is not None
    if is_binary and head.count(REPLACEMENT) >= MIN_REPLACEMENTS:
        return Description(
            msg("reader.binary_rewritten_as_text", "a binary file that a text tool rewrote: bytes are lost"), hint, True
        )
    if head.startswith((b"\x1f\xc2\x8b", b"\xc2\x80\x02", b"\xc2\x80\x03", b"\xc2\x80\x04", b"\x1f\xef\xbf\xbd\x08")):
        return Description(
            msg("reader.binary_encoded_again", "a binary file that a text tool encoded again as UTF-8"), hint, True
        )
    if head.startswith(b"{\\rtf1"):
        return Description(
            msg("reader.rich_text", "a rich text document (RTF)"),
            msg("reader.save_as_plain_text", "save it as plain text"),
            is_mistake=True,
        )
    if re.match(rb"\s*[\[{]", head) and head.count(b"&quot;") >= MIN_REPLACEMENTS and b'"' not in head[:64]:
        return Description(
            msg("reader.json_escaped_for_html", "JSON whose quotes were replaced for a web page"),
            msg("reader.download_file_itself", "download the file itself: the address led to a page, or to a login"),
            is_mistake=True,
        )
    if head.startswith(b"H4sI") and re.fullmatch(rb"[A-Za-z0-9+/=\s]+", head[:4096]):
        return Description(
            msg("reader.gzip_data_in_base64", "gzip data in Base64"),
            msg("reader.decode_base64", "decode it: base64 -d"),
            True,
        )
    return None


def _database(name: str, head: bytes) -> Description | None:
    """Describe an SQLite database by its tables. The first page contains their definitions in reverse order."""
    del name
    if not head.startswith(SQLITE):
        return None
    tables = list(dict.fromkeys(table.decode("utf-8", "replace") for table in reversed(_TABLE.findall(head))))
    if any(table.startswith("CUPTI_ACTIVITY_KIND_") for table in tables):
        return Description(
            msg("reader.database_of_nvprof", "a database of nvprof, which is not read"),
            msg(
                "reader.record_with_nsight_systems",
                "record with Nsight Systems, and export the report: nsys export --type sqlite",
            ),
            may_be_recording=True,
        )
    if any(table.startswith("rocpd_") for table in tables):
        return Description(
            msg("reader.rpd_database", "a database of rocmProfileData (.rpd) without the table rocpd_api_ops"),
            msg("reader.convert_rpd", "convert it: python rpd2tracing.py FILE trace.json"),
            may_be_recording=True,
        )
    if not tables:
        return Description(msg("reader.sqlite_database", "an SQLite database"), may_be_recording=True)
    text = msg("reader.sqlite_with_tables", f"an SQLite database with the tables {_listed(tables)}")
    return Description(text, may_be_recording=True)


def _pickle(name: str, head: bytes) -> Description | None:
    if not PICKLE.match(head):
        return None
    return Description(
        msg("reader.python_pickle", "a Python pickle"),
        msg("reader.pickles_never_opened", "pickles may run any code when opened, so visualprof never opens them"),
        may_be_recording=name.lower().endswith(PICKLE_SUFFIXES),
    )


def _packed(name: str, head: bytes) -> Description | None:
    """Describe archives and compressed files by their magic bytes."""
    del name
    for magic, kind, command in (
        (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
        (b"\xfd7zXZ\x00", "xz", "xz -d"),
        (b"BZh", "bzip2", "bzip2 -d"),
        (b"\x04\x22\x4d\x18", "LZ4", "lz4 -d"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
    ):
        if head.startswith(magic):
            return Description(
                msg("reader.packed_with", f"a file packed with {kind}"),
                msg("reader.unpack_first", f"unpack it: {command}"),
            )
    if head[257:262] == b"ustar":
        return Description(
            msg("reader.tar_archive", "a tar archive"), msg("reader.unpack_first", f"unpack it: {'tar xf'}")
        )
    if head.startswith(b"PK\x03\x04"):
        if b".trace/" in head:
            return Description(INSTRUMENTS.text, INSTRUMENTS.hint, may_be_recording=True)
        if b"data.pkl" in head:
            return Description(
                msg("reader.torch_weights", "weights of PyTorch in a Python pickle"),
                msg("reader.record_with_torch_profiler", "record with torch.profiler"),
            )
        if b"model.weights.h5" in head:
            return _weights_of("Keras 3 (.keras)")
        if b".npy" in head:
            return Description(msg("reader.numpy_archive", "an archive of NumPy arrays (.npz)"))
        return Description(
            msg("reader.zip_archive", "a ZIP archive"), msg("reader.unpack_first", f"unpack it: {'unzip'}")
        )
    return None


def _weights_of(kind: str) -> Description:
    return Description(
        msg("reader.model_in_unread_format", f"a model or weights in the format of {kind}, which is not read"),
        msg(
            "reader.export_as_read_model",
            "export the model as ONNX, TorchScript, torch.export, SavedModel, TFLite, OpenVINO or Paddle",
        ),
    )


def _weights(name: str, head: bytes) -> Description | None:
    """Describe models and weights by magic bytes."""
    for start, magic, kind in (
        (0, b"\x89HDF\r\n\x1a\n", "HDF5 (Keras .h5)"),
        (4, b"ORTM", "ONNX Runtime (.ort)"),
        (0, b"ML\xefR", "MLIR bytecode"),
    ):
        if head[start : start + len(magic)] == magic:
            return _weights_of(kind)
    if head.startswith(b"\x93NUMPY"):
        return Description(msg("reader.numpy_array", "an array of NumPy (.npy)"))
    if re.match(rb"....ET\d\d", head, re.DOTALL):
        return _weights_of("ExecuTorch (.pte)")
    if name.lower().endswith(".pb") and _TENSOR_FIELDS.match(head):
        return Description(
            msg("reader.onnx_tensor", "a tensor of ONNX (TensorProto), such as test data, not a model"),
            msg("reader.name_model_file", "name the model, usually model.onnx"),
        )
    return None


def _model_text(name: str, head: bytes) -> Description | None:
    """Describe models that are written as text."""
    del name
    text = head.lstrip(BLANKS)
    if re.match(rb"<\s*ir_version\s*:|ir_version\s*:", text):
        return Description(
            msg("reader.onnx_as_text", "an ONNX model as text"),
            msg(
                "reader.save_onnx_binary",
                "save it in binary form: onnx.save(onnx.load(path, format=...), 'model.onnx')",
            ),
        )
    if text.startswith(b"{") and re.search(rb'"irVersion"\s*:', text[:2048]):
        return Description(
            msg("reader.onnx_as_json", "an ONNX model as JSON"),
            msg(
                "reader.save_onnx_binary",
                "save it in binary form: onnx.save(onnx.load(path, format=...), 'model.onnx')",
            ),
        )
    if re.match(rb"(#[^\n]*\n|\s)*node\s*\{", text) and re.search(rb'\bop\s*:\s*"', text):
        return Description(
            msg("reader.tensorflow_graph_as_text", "a TensorFlow graph as text (.pbtxt)"),
            msg("reader.save_tensorflow_binary", "save it in binary form (.pb)"),
        )
    if re.match(rb"(strict\s+)?(di)?graph\b[^\n{]*\{", text):
        return Description(msg("reader.graphviz_drawing", "a graph for drawing with Graphviz (.dot)"))
    for expression, kind in (
        (rb"HloModule ", "XLA (HLO text)"),
        (rb"(//[^\n]*\n|#[^\n]*\n|\s)*(builtin\.)?module\b[^\n]*\{", "MLIR"),
        (rb"(name|input|layer|layers)\b[^{]*(\{[^}]*\}[^{]*)*\blayers?\s*\{|layers?\s*\{", "Caffe (.prototxt)"),
    ):
        if re.match(expression, text[:8192]):
            return _weights_of(kind)
    return None


def _foreign_recording(name: str, head: bytes) -> Description | None:
    kind = foreign_recording(name, head)
    return Description(kind.text, kind.hint, may_be_recording=kind.is_recording) if kind else None


def _other(name: str, head: bytes) -> Description | None:
    """Describe other files of profilers by content."""
    del name
    if len(head) > 2 and head[0] & 0x7F == 0x7B and head[1] & 0x7F in (0x28, 0x29):
        return Description(
            msg("reader.cprofile_statistics", "statistics of Python's cProfile, which are not read"),
            msg("reader.open_with_pstats", "open them with `python -m pstats`"),
        )
    return None


def _profiler_text(name: str, head: bytes) -> Description | None:
    """Describe texts that torch.profiler and samplers write next to a trace."""
    del name
    if re.match(rb"\s*-{3,}(\s+-{3,})+\s*\n\s*Name\s", head) and b"Self " in head:
        return Description(
            msg(
                "reader.table_of_key_averages", "a table of torch.profiler (key_averages) as text, which has no events"
            ),
            msg("reader.export_chrome_trace", "write the recording itself: prof.export_chrome_trace('trace.json')"),
            may_be_recording=True,
        )
    return None


def _report(name: str, head: bytes) -> Description | None:
    """Describe reports of load generators, which have no events."""
    del name
    if is_serving_result(head):
        return Description(
            msg("reader.serving_load_test", "the result of a load generator, a report without events"),
            msg("reader.show_serving_load_test", "show it: visualprof view evaluation FILE"),
        )
    return None


def is_serving_result(head: bytes) -> bool:
    """Return whether a file may be the result of a load generator for servers, by its first bytes."""
    return re.match(rb"\s*\{", head) is not None and b'"request_throughput"' in head


def _empty_json(name: str, head: bytes) -> Description | None:
    del name
    text = head.strip(BLANKS + b"\x00")
    if re.fullmatch(rb"\[\s*\]|\{\s*\}", text):
        return Description(
            msg("reader.json_without_events", "JSON without any event"),
            msg("reader.record_again", "record it again, and check that the profiler stopped"),
        )
    return None


def _json(name: str, head: bytes) -> Description | None:
    """Describe other JSON by its first keys."""
    del name
    text = head.lstrip(BLANKS)
    keys = list(dict.fromkeys(key.decode("utf-8", "replace") for key in _KEY.findall(text[:4096])))
    if not re.match(rb"[\[{]", text) or not keys:
        return None
    return Description(msg("reader.json_with_keys", f"JSON with the keys {_listed(keys)}"))


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:MAX_NAME_CHARS] for name in names[:MAX_NAMES])
    return f"{shown}, ..." if len(names) > MAX_NAMES else shown


_RULES: tuple[Callable[[str, bytes], Description | None], ...] = (
    _pointer,
    _rewritten,
    _web_page,
    _database,
    _foreign_recording,
    _pickle,
    _packed,
    _weights,
    _model_text,
    _other,
    _profiler_text,
    _report,
    _empty_json,
    _json,
)
