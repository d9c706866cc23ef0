"""Recorder for ONNX Runtime: a copy of the session runs with profiling, which is fixed at creation."""

from __future__ import annotations

import copy
import gc
import importlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from visualprof.capture.files import warn
from visualprof.capture.options import CaptureError, Options
from visualprof.capture.recorders import Recorder as Shape
from visualprof.capture.topics import Topics

RUNS = ("run", "run_async", "run_with_ort_values")
NODE = "_kernel_time"
DAY_NS = 86_400 * 10**9
_ORT: Any = importlib.import_module("onnxruntime")


class Recorder(Shape):
    """Recorder of one session, that of the options or the only one; each of its runs is a step of the file."""

    kind = "profile.json"
    can = Topics.OPERATOR | Topics.MEMORY
    can_stack = False
    most_steps = 0

    def __init__(self, options: Options) -> None:
        self._session: Any = options.model if isinstance(options.model, _ORT.InferenceSession) else _only_one()
        self._named = options.show_operator_name
        self._twin: Any = None
        self._with_binding = False
        self._folder = ""
        self._written = Path()
        self._start_ns = 0

    @property
    def forkable(self) -> bool:
        """Whether the session runs on the CPU."""
        return self._session.get_providers() == ["CPUExecutionProvider"]

    def start(self) -> None:
        """Create the profiled session and redirect the runs of the original to it.

        Bindings (IOBinding) belong to the original session: such runs work but are not recorded.
        """
        self._folder = tempfile.mkdtemp(prefix="visualprof-")
        session = self._session
        settings: Any = session._sess_options_initial or _ORT.SessionOptions()  # noqa: SLF001
        before = settings.enable_profiling, settings.profile_file_prefix
        settings.enable_profiling, settings.profile_file_prefix = True, str(Path(self._folder, "ort"))
        try:
            providers = session.get_providers()
            options = [session.get_provider_options().get(name, {}) for name in providers]
            twin = _ORT.InferenceSession(session._model_path or session._model_bytes, settings, providers, options)  # noqa: SLF001
        finally:
            settings.enable_profiling, settings.profile_file_prefix = before
        self._start_ns = _epoch_ns(twin.get_profiling_start_time_ns())
        self._twin, copied = twin, copy.copy(session)
        copied._sess, copied.twin_of = twin._sess, session  # noqa: SLF001
        for name in RUNS:
            if hasattr(session, name):
                setattr(session, name, getattr(copied, name))
        bound = session.run_with_iobinding

        def run_with_iobinding(*arguments: Any, **keywords: Any) -> Any:
            self._with_binding = True
            return bound(*arguments, **keywords)

        session.run_with_iobinding = run_with_iobinding

    def mark(self, step: int) -> None:
        """Do nothing: the runs are the steps."""

    def stop(self, whole: bool) -> None:
        """Restore the session's own runs."""
        for name in (*RUNS, "run_with_iobinding"):
            vars(self._session).pop(name, None)
        self._written = Path(self._twin.end_profiling())
        if self._with_binding:
            warn("onnxruntime cannot record runs with an IOBinding: they belong to the session that made it")

    def facts(self) -> dict[str, Any]:
        """Return the version and the clock, which the file does not contain."""
        facts: dict[str, Any] = {"framework": "onnxruntime", "version": str(_ORT.__version__)}
        return facts | ({"clock_origin_ns": self._start_ns} if self._start_ns else {})

    def dump(self, path: Path) -> None:
        """Move the file that ONNX Runtime wrote; it reports no error if writing failed."""
        try:
            if self._named:
                shutil.move(self._written, path)
            else:
                path.write_text(json.dumps(_by_type(json.loads(self._written.read_bytes()))), "utf-8")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _by_type(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events with nodes named by their types."""
    for event in events:
        if event["name"].endswith(NODE) and event["args"].get("op_name"):
            event["name"] = event["args"]["op_name"] + NODE
    return events


def _only_one() -> Any:
    # By type(): isinstance reads `__class__` of each object, which warns for deprecated names of torch.
    sessions: list[Any] = [item for item in gc.get_objects() if issubclass(type(item), _ORT.InferenceSession)]
    if len(sessions) != 1:
        raise CaptureError(
            f"capture records one session of ONNX Runtime, and there are {len(sessions) or 'none'}",
            "make it before, and give it as model",
        )
    return sessions[0]


def _epoch_ns(start_ns: int) -> int:
    """Return the Unix time of the start, which some systems give since boot; 0 if it is neither."""
    for clock in (time.time_ns, time.monotonic_ns):
        if abs(clock() - start_ns) < DAY_NS:
            return start_ns + time.time_ns() - clock() if clock is time.monotonic_ns else start_ns
    return 0
