"""The configuration of a case: merged layers, with the origin of each key; immutable after the merge."""

from __future__ import annotations

import collections
import json
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from visualprof.messages import msg
from visualprof.remote.cases import STEPS
from visualprof.remote.cases.arithmetic import evaluate
from visualprof.remote.protocol import TaskFailure

# Keys that a case may omit. FlagPerf's cases set all of them.
DEFAULTS: dict[str, Any] = {
    "batch_size": 1,
    "flops": None,
    "fp16": False,
    "compiler": None,
    "num_workers": 0,
    "log_freq": 30,
    "repeat": 1,
    "no_validation": False,
    "exist_onnx_path": None,
    "exist_compiler_path": None,
}
MIN_COUNTS = {
    "batch_size": 1,
    "num_workers": 0,
    "log_freq": 1,
    "repeat": 1,
}  # whole numbers with their minimum
FLAG_KEYS = ("fp16", "no_validation")
TEXT_KEYS = ("compiler", "exist_onnx_path", "exist_compiler_path")
HOST_KEYS = ("perf_dir", "data_dir", "log_dir", "vendor", "case", "framework")

Layer = Mapping[str, Any]
_named: Callable[..., Any] = collections.namedtuple


@dataclass(frozen=True)
class Setting:
    """A key of the merged configuration.

    Attributes:
        key: The key.
        value: The effective value.
        origin: The layer that set it.
        before: The value of the layer below as JSON; `None` if that layer does not set it.
    """

    key: str
    value: Any
    origin: str
    before: str | None = None


@dataclass(frozen=True)
class MergedConfig:
    """The merged configuration.

    Attributes:
        settings: Settings by key.
        warnings: New keys, and overrides that change nothing.
        changes: Overrides that change a value.
    """

    settings: dict[str, Setting]
    warnings: list[str] = field(default_factory=list[str])
    changes: list[str] = field(default_factory=list[str])

    def __getitem__(self, key: str) -> Any:
        return self.settings[key].value

    def as_namedtuple(self) -> Any:
        """Return the namedtuple that a case's functions receive."""
        kind = _named("Config", self.settings)
        return kind(*(setting.value for setting in self.settings.values()))


def merge(host: Layer, case: Layer, parameters: Layer, vendor: Layer, command: Layer) -> MergedConfig:
    """Merge the layers: host < case < vendor < command line, and the parameters, which no layer may change.

    Raises:
        TaskFailure: input_error that names every conflict.
    """
    below = {key: Setting(key, value, "default") for key, value in DEFAULTS.items() if key not in parameters}
    below |= {key: Setting(key, value, "case") for key, value in case.items()}
    merged = MergedConfig(below)
    errors = [
        msg("cases.stands_configurations_yaml_parameters", f"{key} is in both configurations.yaml and parameters.yaml")
        for key in case
        if key in parameters
    ]
    for origin, layer in (("vendor", vendor), ("command line", command)):
        errors += [
            msg("cases.parameter_which_may_not", f"{key} is a parameter, which the {origin} may not change")
            for key in layer
            if key in parameters
        ]
        for key, value in layer.items():
            if key not in host and key not in parameters:
                _override(merged, Setting(key, value, origin))
    named_layers = {
        "configurations.yaml": case,
        "parameters.yaml": parameters,
        msg("cases.vendor", "the vendor"): vendor,
        msg("cases.command_line", "command line"): command,
    }
    errors += [
        msg("cases.set_host", f"{key} of {layer_name} is set by the host")
        for layer_name, layer in named_layers.items()
        for key in layer
        if key in host
    ]
    host_settings = {key: Setting(key, value, "host") for key, value in host.items()}
    fixed = {key: Setting(key, value, "parameters") for key, value in parameters.items()}
    merged_all = MergedConfig({**host_settings, **below, **fixed}, merged.warnings, merged.changes)
    errors += config_errors(merged_all)
    if errors:
        raise TaskFailure(
            "input_error", "; ".join(errors), msg("cases.each_key_one_place", "each key has one place: docs/cases.md")
        )
    return merged_all


def _override(merged: MergedConfig, setting: Setting) -> None:
    key, before = setting.key, merged.settings.get(setting.key)
    if before is None:
        merged.warnings.append(
            msg(
                "cases.new_sets_no_layer",
                f"{key} is a new key: the {setting.origin} sets it, and no lower layer has it",
            )
        )
    elif equal_values(before.value, setting.value):
        merged.warnings.append(
            msg(
                "cases.sets_which_already",
                f"{key}: the {setting.origin} sets {as_json(setting.value)}, which is already the value",
            )
        )
        return
    else:
        merged.changes.append(f"{key}: {as_json(before.value)} -> {as_json(setting.value)} ({setting.origin})")
    merged.settings[key] = Setting(key, setting.value, setting.origin, before and as_json(before.value))


def equal_values(a: Any, b: Any) -> bool:
    """Whether two values are equal and of the same kind (true differs from 1)."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def as_json(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def config_errors(merged: MergedConfig) -> list[str]:
    """Return errors: invalid names of keys, and invalid values of the ten keys that every case has."""
    settings = merged.settings
    errors = [msg("cases.no_name", f"{key[:60]!r} is not a valid name") for key in settings if not is_valid_key(key)]
    for key, least in MIN_COUNTS.items():
        value = settings[key].value
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            errors.append(
                msg(
                    "cases.whole_number_more",
                    f"{key} is {as_json(value)}, but must be a whole number of at least {least}",
                )
            )
    errors += [
        msg("cases.true_false", f"{key} must be true or false")
        for key in FLAG_KEYS
        if not isinstance(settings[key].value, bool)
    ]
    texts = [(key, settings[key].value) for key in TEXT_KEYS]
    errors += [
        msg("cases.text_null", f"{key} must be a text or null")
        for key, value in texts
        if value is not None and not _text(value)
    ]
    if settings["flops"].value is not None:
        try:
            evaluate(settings["flops"].value)
        except ValueError as error:
            errors.append(msg("cases.flops", f"flops: {error}"))
    return errors


def is_valid_key(key: object) -> bool:
    """Whether a key can be a field of a namedtuple."""
    return isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key) and key[0] != "_"


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def skipped_steps(merged: Layer | MergedConfig) -> dict[str, str]:
    """Return the steps that the configuration skips, each with the reason.

    Raises:
        TaskFailure: input_error: Nothing would remain to run, or no_validation is set without a model to compile.
    """
    compiler, onnx, compiled = (merged[key] for key in TEXT_KEYS)
    left_out: dict[str, str] = {}
    if merged["no_validation"]:
        if compiler is None:
            raise TaskFailure(
                "input_error",
                msg(
                    "cases.nothing_left_run_compiler",
                    "there is nothing to run: compiler is null and no_validation is true",
                ),
            )
        if onnx is None:
            hint = msg("cases.say_where_model_leave", "set exist_onnx_path, or set no_validation to false")
            raise TaskFailure(
                "input_error",
                msg(
                    "cases.no_validation_needs_exist",
                    "no_validation needs exist_onnx_path: there is no model to export",
                ),
                hint,
            )
        left_out["validation"] = msg("cases.no_validation_true", "no_validation is true")
    if compiler is None:
        return left_out | dict.fromkeys(STEPS[3:6], msg("cases.compiler_null", "compiler is null"))
    if onnx is not None:
        left_out["export"] = msg("cases.exist_onnx_path_names", "exist_onnx_path names the model")
    if compiled is not None:
        left_out["compile"] = msg("cases.exist_compiler_path_names", "exist_compiler_path names the compiled model")
    return left_out
