"""`autowrap`: count the steps of the framework's own optimizers and sessions, so that the script stays unchanged."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

from visualprof.capture import hooks
from visualprof.capture.files import warn
from visualprof.capture.options import CaptureError, CaptureWarning
from visualprof.capture.profile import Profile, profile
from visualprof.capture.recorders import INFERENCE, TRAINING
from visualprof.capture.topics import Topics

VARIABLE = "VISUALPROF_CAPTURE"
_SETTING = re.compile(r"(?P<logdir>.+?)(?::(?P<options>\w+=[^:]*))?")
_SWITCHES = ("memory", "shapes", "stacks", "align_time", "show_operator_name", "monitor")
_NUMBERS = ("steps", "warmup", "wait", "repeat", "max_files")


def autowrap(setting: str | None = None) -> Automatic | None:
    """Record steps of this process without a change of its training loop.

    A step ends with each step of the first optimizer (torch, MegEngine, Paddle) or each run of a session (ONNX Runtime,
    OpenVINO). The first step identifies the framework, so recording starts with the second step at the earliest.

    Args:
        setting: `<logdir>:<options>`, such as `runs/today:steps=5@100,stacks=1` for 5 steps from step 100. Default: the
            variable `VISUALPROF_CAPTURE`.

    Returns:
        None if that variable is not set.

    Raises:
        CaptureError: The setting is invalid.
    """
    setting = os.environ.get(VARIABLE, "") if setting is None else setting
    if not setting:
        return None
    logdir, options = parsed(setting)
    automatic = Automatic(logdir, **options)
    automatic.begin()
    return automatic


class Automatic:
    """Recording that the first framework drives in which a step ends.

    Args:
        logdir: Like `profile`.
        options: Like `profile`.
        whole: Record from the import of a training framework to the end of the process; as one step if no step ends.

    Raises:
        CaptureError: No step would pass before the recording.
    """

    def __init__(self, logdir: str | os.PathLike[str], *, whole: bool = False, **options: Any) -> None:
        if not whole and options.get("wait", 0) + options.get("warmup", 2) < 1:
            raise CaptureError("the first step tells what to record", "begin with step 1: warmup=1, or steps=5@1")
        self._logdir = logdir
        self._options: dict[str, Any] = {**options, "wait": 0, "warmup": 0, "steps": 0} if whole else options
        self._whole = whole
        self._framework = ""
        self._profile: Profile | None = None
        self._undo: list[hooks.Undo] = []

    def begin(self) -> None:
        """Wait for a framework to be imported."""
        self._undo.append(hooks.when_imported(TRAINING + INFERENCE, self._imported))

    def end(self) -> list[Path]:
        """End the recording; return the files once they are written."""
        while self._undo:
            self._undo.pop()()
        if self._profile is None:
            return []
        with warnings.catch_warnings():  # the hint names `step`, which this script does not call
            warnings.filterwarnings("ignore", "nothing was recorded", CaptureWarning)
            self._profile.__exit__(None, None, None)
        return self._profile.files()

    def _imported(self, framework: str) -> None:
        if self._whole and framework in TRAINING and not self._framework:
            self._enter(framework)
        self._undo.append(hooks.watch(framework, lambda subject: self._step_ended(framework, subject)))

    def _step_ended(self, framework: str, subject: Any) -> None:
        if not self._framework:
            self._enter(framework, subject if framework in INFERENCE else None)
            if self._whole:  # the first step starts now
                return
        if self._profile and framework == self._framework:
            try:
                self._profile.step()
            except Exception as error:  # noqa: BLE001 - of the profiler, whatever it is
                self._refuse(error)

    def _enter(self, framework: str, session: Any = None) -> None:
        self._framework = framework
        try:
            self._profile = profile(self._logdir, framework=framework, model=session, **self._options).__enter__()
        except CaptureError as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """Warn about an error; the program continues without a recording."""
        self._profile = None
        warn(str(error))


def parsed(setting: str) -> tuple[str, dict[str, Any]]:
    """Return the folder and the options of `profile`.

    Raises:
        CaptureError: An option does not exist, or its value is invalid.
    """
    match = _SETTING.fullmatch(setting)
    assert match
    options: dict[str, Any] = {}
    for part in filter(None, (match["options"] or "").split(",")):
        name, _, value = part.partition("=")
        try:
            options |= _option(name, value)
        except (KeyError, ValueError) as error:
            hint = f"options are {', '.join((*_NUMBERS, *_SWITCHES, 'topics', 'run'))}: steps=5@100,stacks=1"
            raise CaptureError(f"{VARIABLE}: {part!r} is no option", hint) from error
    return match["logdir"], options


def _option(name: str, value: str) -> dict[str, Any]:
    if name == "steps" and "@" in value:
        count, _, first = value.partition("@")
        return {"steps": int(count), "wait": int(first), "warmup": 0}
    if name in _NUMBERS:
        return {name: int(value)}
    if name in _SWITCHES:
        return {name: {"1": True, "0": False}[value]}
    if name == "topics":
        return {"topics": topics(value)}
    if name == "run":
        return {"run": value}
    raise KeyError(name)


def topics(names: str) -> Topics:
    """Return topics by name, such as `OPERATOR|SCOPE`.

    Raises:
        KeyError: There is no topic of that name.
    """
    chosen = Topics(0)
    for name in names.split("|"):
        chosen |= Topics[name.strip().upper()]
    return chosen
