"""Recordings of other profilers that visualprof does not read, with the command that makes a readable file.

A kind is recognized by the start of its content or by its file name ending, and a folder by its name and its entries.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from visualprof.messages import msg
from visualprof.reader.patterns import pattern


class ForeignRecording(NamedTuple):
    """A kind of recording.

    Attributes:
        text: Completes `this is ...`.
        hint: The command that makes a readable file.
        suffixes: File name endings, in lower case.
        magic: Starts of the content.
        content: A pattern at the start of the content, `None` if the content shows nothing.
        is_recording: Whether a log directory lists such a file as skipped. Files that accompany a readable recording
            are not listed.
    """

    text: str
    hint: str
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    content: re.Pattern[bytes] | None = None
    is_recording: bool = True


_RECORD_WITH_TORCH = msg("reader.record_with_torch_profiler", "record with torch.profiler")
_RECORD_MEMORY = msg(
    "reader.record_memory_history",
    "record memory with torch: torch.cuda.memory._record_memory_history(), then _dump_snapshot('snapshot.pickle')",
)
_SAMPLER_HINT = msg(
    "reader.sample_with_py_spy", "sample with py-spy: py-spy record --format chrometrace -o trace.json --pid PID"
)
RECORDINGS = (
    ForeignRecording(
        msg("reader.nsight_systems_report", "a report of Nsight Systems, which only its own tools read"),
        msg("reader.export_nsight_report", "export it: nsys export --type sqlite"),
        (".nsys-rep", ".qdrep", ".qdstrm"),
    ),
    ForeignRecording(
        msg("reader.nsight_compute_project", "a project of Nsight Compute, which only its own tools read"),
        msg(
            "reader.export_nsight_compute", "export a report: ncu --import REPORT.ncu-rep --csv --page raw > x.ncu.csv"
        ),
        (".ncu-proj", ".nsight-cuprof-report", ".nsight-cuprof"),
    ),
    ForeignRecording(
        msg("reader.rocprof_recording", "a recording of an AMD profiler, which only its own tools read"),
        msg("reader.record_rocprofv3_json", "record with rocprofv3 --output-format json"),
        (".rocprof", ".rgp"),
    ),
    ForeignRecording(
        msg("reader.tensorrt_engine", "an engine of TensorRT, which only TensorRT itself reads"),
        msg("reader.profile_engine", "measure it: trtexec --loadEngine=FILE --exportProfile=profile.json"),
        (".engine", ".plan", ".trt"),
        (b"ftrt", b"ptrt"),
        is_recording=False,
    ),
    ForeignRecording(
        msg("reader.windows_trace", "a recording of Windows (ETW), which is not read"),
        _RECORD_WITH_TORCH,
        (".etl", ".etlx"),
    ),
    ForeignRecording(
        msg("reader.perf_recording", "samples of Linux perf or Android simpleperf, which are not read"),
        _SAMPLER_HINT,
        (),
        (b"PERFILE2", b"SIMPLEPERF"),
    ),
    ForeignRecording(
        msg("reader.kernel_trace", "a recording of the Linux kernel (trace-cmd), which is not read"),
        msg("reader.record_perfetto", "record with Perfetto: tracebox -o trace.pftrace"),
        (),
        (b"\x17\x08\x44tracing",),
    ),
    ForeignRecording(
        msg("reader.proton_tree", "a tree of Triton's profiler Proton (Hatchet), which has no times of events"),
        msg("reader.record_proton_trace", "record a trace with it: proton -d trace, or proton.start(data='trace')"),
        (".hatchet",),
        (),
        pattern(rb'\s*\[\s*\{\s*"children"\s*:\s*\[.{0,4000}?"frame"\s*:', re.DOTALL),
    ),
    ForeignRecording(
        msg("reader.tensorflow_profile_page", "a page that TensorBoard's profiler derived from a recording"),
        msg("reader.open_xplane", "open the recording of the same folder: HOST.xplane.pb"),
        (
            ".op_profile.pb",
            ".overview_page.pb",
            ".input_pipeline.pb",
            ".tensorflow_stats.pb",
            ".kernel_stats.pb",
            ".memory_profile.json",
            ".memory_profile.json.gz",
            ".op_metrics_db.pb",
        ),
        is_recording=False,
    ),
    ForeignRecording(
        msg("reader.hlo_of_profile", "a module of XLA next to a recording, which is not read"),
        msg("reader.open_xplane", "open the recording of the same folder: HOST.xplane.pb"),
        (".hlo_proto.pb", ".hlo.pb"),
        is_recording=False,
    ),
    ForeignRecording(
        msg("reader.paddle_protobuf", "a recording of Paddle as Protobuf, which only Paddle reads"),
        msg(
            "reader.convert_paddle_protobuf",
            "convert it: paddle.profiler.load_profiler_result(FILE).save('trace.json', 'json')",
        ),
        (".paddle_trace.pb",),
    ),
    ForeignRecording(
        msg("reader.neuron_profile", "a recording of AWS Neuron, which only its own tools read"),
        msg(
            "reader.convert_neuron",
            "convert it: neuron-profile view -n FILE.neff -s FILE.ntff --output-format perfetto",
        ),
        (".ntff",),
    ),
    ForeignRecording(
        msg("reader.qnn_profile", "a profile of Qualcomm's QNN, which only its own tools read"),
        msg(
            "reader.convert_qnn",
            "convert it: qnn-profile-viewer --reader libQnnChrometraceProfilingReader.so --input_log FILE",
        ),
        ("qnn-profiling-data.log", "qnn-profiling-data_0.log"),
        (),
        pattern(rb"Msg Timestamp,Message,Time,Unit of Measurement"),
    ),
    ForeignRecording(
        msg("reader.ascend_table", "a table that Ascend's profiler derived from a recording"),
        msg("reader.open_ascend_recording", "open the recording of the same folder: trace_view.json, or its database"),
        (),
        (),
        pattern(
            rb"[^\n]{0,400}(?:Accelerator Core|Task Duration\(us\)|Device Self Duration\(us\)"
            rb"|Communication\(Not Overlapped\))"
            rb'|\s*\{\s*"step\d{0,9}"\s*:\s*\{\s*"(?:p2p|collective)"'
        ),
        is_recording=False,
    ),
    ForeignRecording(
        msg("reader.chakra_trace", "a Chakra execution trace (Protobuf), which is not supported"),
        msg("reader.open_execution_trace", "open its source JSON: visualprof view graph pytorch_et.json"),
        (".et",),
        is_recording=False,
    ),
    ForeignRecording(
        msg("reader.flight_recorder", "a PyTorch flight recorder dump, which has no kernels"),
        msg("reader.compare_flight_records", "compare the ranks: torchfrtrace FOLDER"),
        (),
        (),
        pattern(rb"\x80[\x02-\x05].{0,2000}?(?:nccl_version|comm_lib_version|pg_config)", re.DOTALL),
        is_recording=False,
    ),
    ForeignRecording(
        msg("reader.pprof_profile", "a profile of pprof, which has no operators or kernels"),
        msg("reader.collapse_pprof", "write its stacks: go tool pprof -raw FILE | stackcollapse-go.pl > stacks.folded"),
        (".pprof",),
        (),
        # Types of samples, pairs of two numbers of texts, and then the first sample
        pattern(rb"(?:\x0a\x04\x08[\x01-\x1f]\x10[\x01-\x1f]){1,4}\x12"),
    ),
    ForeignRecording(
        msg("reader.vtune_result", "a result of Intel's VTune, which only VTune reads"),
        msg("reader.record_unitrace", "record Chrome JSON: unitrace --chrome-call-logging --chrome-kernel-logging APP"),
        (".vtune", ".advixe"),
    ),
    ForeignRecording(
        msg("reader.memray_recording", "a recording of memray, which only memray reads"),
        _RECORD_MEMORY,
        (),
        (b"memray",),
    ),
    ForeignRecording(
        msg("reader.stack_samples", "a profile of sampled stacks, which has no operators or kernels"),
        _SAMPLER_HINT,
        (".speedscope.json", ".cpuprofile", ".heapprofile", ".lprof", ".pyisession", ".jfr", ".collapsed"),
        (b"FLR\x00",),
        pattern(
            rb'\s*\{(?:[^{}]{0,2000}"\$schema"\s*:\s*"https?://www\.speedscope\.app/'
            rb'|\s*"meta"\s*:\s*\{\s*"categories"|\s*"nodes"\s*:\s*\[\s*\{\s*"id"\s*:\s*\d+\s*,\s*"callFrame")'
        ),
    ),
    ForeignRecording(
        msg("reader.mpi_recording", "a recording of a profiler for MPI programs, which is not read"),
        _RECORD_WITH_TORCH,
        (".otf2", ".cubex", ".prv", ".cali", ".hpcrun", ".slog2"),
    ),
    ForeignRecording(
        msg("reader.graphics_capture", "a capture of a graphics debugger, which has no profile of a model"),
        _RECORD_WITH_TORCH,
        (".rdc", ".wpix", ".ngfx-capture", ".ngfx-gputrace", ".gputrace"),
    ),
)
TORCH_NPU_ANALYSIS = "torch_npu.profiler.profiler.analyse('FOLDER')"
INSTRUMENTS = ForeignRecording(
    msg("reader.instruments_bundle", "a recording of Apple's Instruments, which only Instruments reads"),
    msg(
        "reader.record_on_apple",
        "record the framework on this machine: torch.profiler, or ONNX Runtime with enable_profiling",
    ),
)
ASCEND_RAW_DATA = ForeignRecording(
    msg("reader.ascend_raw_data", "raw data of Ascend's profiler that was not exported"),
    msg("reader.export_ascend", "export it: msprof --export=on --type=db --output=FOLDER"),
)
ASCEND_NOT_ANALYZED = ForeignRecording(
    msg("reader.ascend_not_analyzed", "a recording of torch_npu that was not analyzed"),
    msg("reader.analyze_ascend", f"analyze it: {TORCH_NPU_ANALYSIS}"),
)
_INSTRUMENTS_ENTRIES = {"form.template", "Trace1.run", "corespace", "instrument_data", "shared_data"}


def foreign_recording(name: str, head: bytes) -> ForeignRecording | None:
    """Return the kind of a recording by its file name and first bytes, `None` for another file."""
    lower = name.lower()
    for kind in RECORDINGS:
        if lower.endswith(kind.suffixes) or head.startswith(kind.magic):
            return kind
        if kind.content is not None and kind.content.match(head):
            return kind
    return None


def foreign_folder(name: str, entries: Collection[str]) -> ForeignRecording | None:
    """Return the kind of a recording that is a folder, `None` for another folder.

    Args:
        name: The folder's name.
        entries: Names of its files and folders.
    """
    if name.lower().endswith(".trace") and not _INSTRUMENTS_ENTRIES.isdisjoint(entries):
        return INSTRUMENTS
    for kind in RECORDINGS:
        if kind.suffixes and name.lower().endswith(kind.suffixes):
            return kind
    if name.endswith(("_ascend_pt", "_ascend_ms")):
        is_raw = any(entry.startswith("PROF_") or entry == "FRAMEWORK" for entry in entries)
        return ASCEND_NOT_ANALYZED if is_raw and "ASCEND_PROFILER_OUTPUT" not in entries else None
    if name.startswith("PROF_") and any(entry == "host" or entry.startswith("device_") for entry in entries):
        is_exported = any(e == "mindstudio_profiler_output" or e.endswith(".db") for e in entries)
        return None if is_exported else ASCEND_RAW_DATA
    return None
