"""Files of unknown formats: errors name the content, and log directories list files that may matter."""

from __future__ import annotations

import gzip
import io
import marshal
import pickle
import sqlite3
import zipfile
from pathlib import Path

import pytest

from tests.recordings import recording_path
from visualprof.cli import main
from visualprof.errors import FormatError, UnknownFormat
from visualprof.reader import read_trace
from visualprof.reader.foreign_files import describe
from visualprof.reader.foreign_recordings import ASCEND_RAW_DATA, TORCH_NPU_ANALYSIS, foreign_folder
from visualprof.reader.logdir.listing import scan_profiles
from visualprof.reader.models import read_model

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345678\n"
BINARY = bytes(range(256)) * 8


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return data.getvalue()


def database(path: Path, *tables: str) -> bytes:
    with sqlite3.connect(path) as connection:
        for table in tables:
            connection.execute(f"CREATE TABLE {table}(a, b)")
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("content", "text", "hint"),
    [
        (POINTER, "Git LFS pointer to a file of 12,345,678 bytes", "git lfs pull"),
        (b"../.git/annex/objects/x/y/SHA256E-s10--ab.json", "git-annex pointer", "git annex get"),
        (b"\n<!DOCTYPE html><html><title>404</title></html>", "saved web page", "download the file itself"),
        (b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>", "storage server", "download"),
        (BINARY.decode("utf-8", "replace").encode(), "a text tool rewrote", "copy the original again"),
        (gzip.compress(b"{}", mtime=0).decode("latin-1").encode(), "encoded again as UTF-8", "copy the original again"),
        ('{"traceEvents": []}'.encode("utf-16"), "UTF-16", "save it as UTF-8"),
        (b"H4sIAAAAAAAA/6tWKkktLlGyUlAqS8wpTtVRykvMTVWyUlBKSk7OBgBbtmLPHgAAAA==", "Base64", "base64 -d"),
        (rb"{\rtf1\ansi hello}", "rich text document", "plain text"),
        (b"{&quot;traceEvents&quot;: [{&quot;ph&quot;: 1}]}", "quotes were replaced for a web page", "download"),
        (pickle.dumps({"a": 1}), "a Python pickle", "never opens them"),
        (b"PERFILE2\x68\x00", "samples of Linux perf", "py-spy record --format chrometrace"),
        (b"\x17\x08\x44tracing6\x00", "a recording of the Linux kernel", "tracebox"),
        (b"memray\x00\x0c", "a recording of memray", "_dump_snapshot"),
        (b'[{"children": [], "frame": {"name": "ROOT", "type": "function"}}]', "Triton's profiler", "proton -d trace"),
        (
            b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []}',
            "sampled stacks",
            "py-spy",
        ),
        (b'{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"}}]}', "sampled stacks", "py-spy"),
        (b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x07", "a profile of pprof", "stackcollapse-go.pl"),
        (b"Msg Timestamp,Message,Time,Unit of Measurement,Timing Source\n", "Qualcomm", "qnn-profile-viewer"),
        (b"Step Id,Name,Type,Accelerator Core,Start Time(us)\n3,a,b,AI_CORE,1\n", "Ascend", "trace_view.json"),
        (b"Device_id,Op Name,Task Duration(us)\n0,MatMul,2.0\n", "Ascend", "trace_view.json"),
        (b'{"step3": {"p2p": {}, "collective": {}}}', "Ascend", "trace_view.json"),
        (zipped("run.trace/form.template"), "Apple's Instruments", "torch.profiler"),
        (b'{"request_throughput": 3.98, "mean_ttft_ms": 41.2}', "the result of a load generator", "view evaluation"),
        (b"----  ------\nName  Self CPU \n----  ------\n", "a table of torch.profiler", "export_chrome_trace"),
        (b"\x28\xb5\x2f\xfd\x04", "packed with zstd", "zstd -d"),
        (zipped("trace.json"), "a ZIP archive", "unzip"),
        (zipped("config.json", "model.weights.h5"), "Keras 3", "export the model as ONNX"),
        (b"\x18\0\0\0ORTM", "ONNX Runtime (.ort)", "export the model"),
        (b'ir_version: 8\ngraph {\n  name: "g"\n}\n', "an ONNX model as text", "onnx.save"),
        (b'node {\n  name: "x"\n  op: "Relu"\n}\n', "a TensorFlow graph as text", ".pb"),
        (b"HloModule jit_f\n", "XLA (HLO text)", "export the model"),
        (b"// a comment\nmodule @m {\n}\n", "MLIR", "export the model"),
        (b'name: "n"\nlayer {\n  name: "data"\n}\n', "Caffe", "export the model"),
        (b"digraph G { a -> b; }", "Graphviz", "visualprof reads"),
        (marshal.dumps({("a.py", 1, "f"): (1, 1, 0.1, 0.1, {})}), "cProfile", "pstats"),
        (b" [ ]\n", "JSON without any event", "record it again"),
        (b'{"backend": "vllm", "completed": 3}', "JSON with the keys backend, completed", "visualprof reads"),
    ],
)
def test_an_error_says_what_the_file_is(tmp_path: Path, content: bytes, text: str, hint: str) -> None:
    path = tmp_path / "file.dat"
    path.write_bytes(content)
    for read, kind in ((read_trace, "profile"), (read_model, "model")):
        if kind == "model" and content.startswith(b"\x80"):
            continue  # the formats of torch have an error of their own for pickles
        with pytest.raises(FormatError) as failure:
            read(path)
        assert failure.value.error.startswith(f"file.dat: no {kind} format recognizes the content: this is ")
        assert text in failure.value.error
        assert hint.lower() in failure.value.hint.lower()


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("net.engine", "an engine of TensorRT", "trtexec --loadEngine=FILE --exportProfile=profile.json"),
        ("NET.PLAN", "an engine of TensorRT", "trtexec --loadEngine=FILE --exportProfile=profile.json"),
        ("boot.etl", "a recording of Windows", "record with torch.profiler"),
        ("run.qdrep", "a report of Nsight Systems", "nsys export --type sqlite"),
        ("run.ncu-proj", "a project of Nsight Compute", "ncu --import"),
        ("frame.rgp", "an AMD profiler", "rocprofv3 --output-format json"),
        ("x.rocprof", "an AMD profiler", "rocprofv3 --output-format json"),
        ("proton.hatchet", "Triton's profiler", "proton -d trace"),
        ("h.overview_page.pb", "TensorBoard's profiler", "xplane.pb"),
        ("jit_f.hlo_proto.pb", "a module of XLA", "xplane.pb"),
        ("w_time_1.paddle_trace.pb", "Protobuf", "load_profiler_result"),
        ("profile.ntff", "AWS Neuron", "--output-format perfetto"),
        ("qnn-profiling-data_0.log", "Qualcomm", "qnn-profile-viewer"),
        ("r000hs.vtune", "VTune", "unitrace --chrome-call-logging"),
        ("py.speedscope.json", "sampled stacks", "py-spy"),
        ("trace.otf2", "MPI", "torch.profiler"),
        ("rank.0.et", "Chakra", "visualprof view graph"),
        ("frame.gputrace", "graphics debugger", "torch.profiler"),
    ],
)
def test_a_file_is_named_by_its_ending(name: str, text: str, hint: str) -> None:
    description = describe(name, b"\x01\x02\x03\x04")
    assert description is not None
    assert text in description.text
    assert hint in description.hint


def test_a_dump_of_the_flight_recorder_is_named() -> None:
    description = describe("nccl_trace_rank_0", pickle.dumps({"version": "2.4", "pg_config": {}, "entries": []}))
    assert description is not None
    assert "flight recorder" in description.text
    assert "torchfrtrace" in description.hint


def test_raw_data_of_a_device_alone_is_named(tmp_path: Path) -> None:
    assert foreign_folder("PROF_1_2_AB", ["device_0"]) is ASCEND_RAW_DATA
    assert foreign_folder("PROF_1_2_AB", ["device_0", "mindstudio_profiler_output"]) is None


def test_a_folder_of_another_profiler_is_one_skipped_entry(tmp_path: Path) -> None:
    for file in (
        "cpu.trace/form.template",
        "cpu.trace/Trace1.run/RunIssues.storedata",
        "node_1_ascend_pt/PROF_1_2_AB/host/data/a.slice_0",
        "job/PROF_1_2_AB/host/data/a.slice_0",
        "mine.trace/trace.json",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        database(tmp_path / file, "z") if file.endswith("data") else (tmp_path / file).write_bytes(b"x")
    listed = {problem.file: (problem.error, problem.hint) for problem in scan_profiles([tmp_path]).skipped}
    assert sorted(listed) == ["cpu.trace", "job/PROF_1_2_AB", "mine.trace/trace.json", "node_1_ascend_pt"]
    assert "Apple's Instruments" in listed["cpu.trace"][0]
    assert TORCH_NPU_ANALYSIS in listed["node_1_ascend_pt"][1]
    assert "msprof --export=on" in listed["job/PROF_1_2_AB"][1]


def test_a_folder_without_a_readable_file_is_an_error_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cpu.trace").mkdir()
    (tmp_path / "cpu.trace" / "form.template").write_bytes(b"x")
    assert main(["view", "overview", str(tmp_path)]) != 0
    error = capsys.readouterr().err
    assert "cpu.trace: this folder is a recording of Apple's Instruments" in error
    assert "torch.profiler" in error


def test_an_unknown_text_is_not_described(tmp_path: Path) -> None:
    for text in ("hello", "a;b;c 12\n", "name: x\nvalue: 3\n", "import os\n"):
        assert describe("notes.txt", text.encode()) is None


def test_a_database_is_named_by_its_tables(tmp_path: Path) -> None:
    known = {
        "nvprof.nvvp": (("StringTable", "CUPTI_ACTIVITY_KIND_RUNTIME"), "a database of nvprof, which is not read"),
        "trace.rpd": (("rocpd_string", "rocpd_api", "rocpd_op"), "a database of rocmProfileData"),
        "other.db": (("trials", "studies"), "an SQLite database with the tables trials, studies"),
        "empty.db": ((), r"this is an SQLite database \("),
    }
    for name, (tables, text) in known.items():
        database(tmp_path / name, *tables) if tables else (tmp_path / name).write_bytes(
            b"SQLite format 3\0" + bytes(84)
        )
        with pytest.raises(UnknownFormat, match=text):
            read_trace(tmp_path / name)


def test_a_model_is_no_profile_and_a_profile_is_no_model(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(FormatError, match=r"t\.json is a profile \(torch\.profiler\), not a model"):
        read_model(trace)
    graph = tmp_path / "g.onnx"
    graph.write_bytes(b"\x08\x08\x12\x01v\x3a\x02\x0a\x00")
    with pytest.raises(FormatError, match=r"g\.onnx is a model \(ONNX\), not a profile"):
        read_trace(graph)


def test_a_log_directory_lists_what_takes_the_place_of_a_recording(tmp_path: Path) -> None:
    page = b"<!DOCTYPE html><html></html>"
    database(tmp_path / "study.db", "trials")
    files = {
        "run.pt.trace.json": POINTER,
        "model.onnx": POINTER,
        "frozen.pb": page,
        "snap.pickle": pickle.dumps([1]),
        "trace.json": '{"a": 1}'.encode("utf-16"),
        "report.nsys-rep": b"NVIDIA",
        "index.html": page,
        "picture.png": POINTER,
        "weights.pt": pickle.dumps([1]),
        "notes.txt": b"hello",
        "jobs.sqlite": b"",
        "config.yaml": b"a: 1",
        "data.npy": b"\x93NUMPY",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    database(tmp_path / "jobs.sqlite", "jobs")
    listed = {problem.file: problem.error for problem in scan_profiles([tmp_path]).skipped}
    assert sorted(listed) == [
        "frozen.pb",
        "model.onnx",
        "report.nsys-rep",
        "run.pt.trace.json",
        "snap.pickle",
        "study.db",
        "trace.json",
    ]
    assert "Git LFS pointer" in listed["model.onnx"]
    assert "tables trials" in listed["study.db"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("13-model-files/lfs.onnx", "Git LFS pointer"),
        ("13-model-files/html.onnx", "saved web page"),
        ("13-model-files/input_0.pb", "a tensor of ONNX"),
        ("13-model-files/model.h5", "HDF5"),
        ("13-model-files/model.ort", "ONNX Runtime"),
        ("13-model-files/model.pte", "ExecuTorch"),
        ("13-model-files/model.onnxtxt", "ONNX model as text"),
        ("13-model-files/model.onnx.json", "ONNX model as JSON"),
        ("19-empty-or-header-only/html.json", "saved web page"),
        ("19-empty-or-header-only/list.json", "JSON without any event"),
        ("23-nvprof-db/nvprof.nvvp", "nvprof"),
    ],
)
def test_public_cases_are_named(file: str, text: str) -> None:
    path = recording_path(f"cases/reports/{file}")
    for read in (read_trace, read_model):
        with pytest.raises(FormatError, match=text):
            read(path)
