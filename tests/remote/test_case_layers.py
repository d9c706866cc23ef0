"""The configuration of benchmark cases: layers, origins, switches, arithmetic."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from visualprof.remote.cases.arithmetic import evaluate
from visualprof.remote.cases.layers import DEFAULTS, merge, skipped_steps
from visualprof.remote.protocol import TaskFailure

HOST = {"vendor": "cpu", "case": "net", "data_dir": "/data"}


def test_later_layers_override_earlier_ones_and_origins_are_recorded() -> None:
    merged = merge(
        HOST,
        {"batch_size": 256, "fp16": False, "repeat": 1},
        {"size": 224},
        {"batch_size": 32, "fp16": False, "trt_tmp_path": "x.trt"},
        {"batch_size": 8, "repeat": 1},
    )
    settings_by_key = {key: (item.value, item.origin, item.before) for key, item in merged.settings.items()}
    assert settings_by_key["vendor"] == ("cpu", "host", None)
    assert settings_by_key["num_workers"] == (0, "default", None)
    assert settings_by_key["batch_size"] == (8, "command line", "32")
    assert settings_by_key["fp16"] == (False, "case", None)
    assert settings_by_key["trt_tmp_path"] == ("x.trt", "vendor", None)
    assert settings_by_key["size"] == (224, "parameters", None)
    assert merged.changes == ["batch_size: 256 -> 32 (vendor)", "batch_size: 32 -> 8 (command line)"]
    assert merged.warnings == [
        "fp16: the vendor sets false, which is already the value",
        "trt_tmp_path is a new key: the vendor sets it, and no lower layer has it",
        "repeat: the command line sets 1, which is already the value",
    ]
    config = merged.as_namedtuple()
    assert (config.batch_size, config.size, config.data_dir) == (8, 224, "/data")
    with pytest.raises(AttributeError):
        config.batch_size = 1


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (({"a": 1}, {"a": 2}, {}, {}), "a is in both configurations.yaml and parameters.yaml"),
        (({}, {"a": 2}, {"a": 3}, {}), "a is a parameter, which the vendor may not change"),
        (({}, {"a": 2}, {}, {"a": 3}), "a is a parameter, which the command line may not change"),
        (({"data_dir": "x"}, {}, {}, {}), "data_dir of configurations.yaml is set by the host"),
        (({}, {"vendor": "x"}, {}, {}), "vendor of parameters.yaml is set by the host"),
        (({}, {}, {"case": "x"}, {}), "case of the vendor is set by the host"),
        (({"batch_size": 0}, {}, {}, {}), "batch_size is 0, but must be a whole number of at least 1"),
        (({"repeat": True}, {}, {}, {}), "repeat is true, but must be a whole number of at least 1"),
        (({"fp16": 1}, {}, {}, {}), "fp16 must be true or false"),
        (({"compiler": 3}, {}, {}, {}), "compiler must be a text or null"),
        (({"two words": 3}, {}, {}, {}), "'two words' is not a valid name"),
        (({"flops": "__import__('os')"}, {}, {}, {}), "flops: \"__import__('os')\" has no value"),
    ],
)
def test_clashes_and_wrong_values_are_errors_that_name_the_key(layers: Any, words: str) -> None:
    with pytest.raises(TaskFailure) as raised:
        merge(HOST, *layers)
    assert raised.value.reason == "input_error"
    assert words in raised.value.error


# Of compiler, no_validation, exist_onnx_path, exist_compiler_path: the steps that are left out, or the refusal.
V, E, C, I = "validation", "export", "compile", "inference"  # noqa: E741
NOTHING, NO_MODEL = "there is nothing to run", "no_validation needs exist_onnx_path"
GOLDEN: dict[tuple[bool, bool, bool, bool], str | set[str]] = {
    (False, False, False, False): {E, C, I},
    (False, False, False, True): {E, C, I},
    (False, False, True, False): {E, C, I},
    (False, False, True, True): {E, C, I},
    (False, True, False, False): NOTHING,
    (False, True, False, True): NOTHING,
    (False, True, True, False): NOTHING,
    (False, True, True, True): NOTHING,
    (True, False, False, False): set(),
    (True, False, False, True): {C},
    (True, False, True, False): {E},
    (True, False, True, True): {E, C},
    (True, True, False, False): NO_MODEL,
    (True, True, False, True): NO_MODEL,
    (True, True, True, False): {V, E},
    (True, True, True, True): {V, E, C},
}


@pytest.mark.parametrize("switches", list(itertools.product([False, True], repeat=4)))
def test_the_four_switches_omit_their_stages(switches: tuple[bool, bool, bool, bool]) -> None:
    compiler, no_validation, onnx, compiled = switches
    settings = {
        **DEFAULTS,
        "compiler": "tensorrt" if compiler else None,
        "no_validation": no_validation,
        "exist_onnx_path": "a.onnx" if onnx else None,
        "exist_compiler_path": "a.trt" if compiled else None,
    }
    wanted = GOLDEN[switches]
    if isinstance(wanted, str):
        with pytest.raises(TaskFailure, match=wanted):
            skipped_steps(settings)
    else:
        assert set(skipped_steps(settings)) == wanted


def test_flops_are_arithmetic() -> None:
    assert evaluate("2 * 4.09e9") == 8.18e9
    assert evaluate("-(1 + 2) ** 2 / 3") == -3.0
    assert evaluate(7) == 7.0
    assert evaluate("1e9") == 1e9  # a text for YAML
    assert math.isclose(evaluate("2*(3*64*64*224**2)"), 2 * 3 * 64 * 64 * 224 * 224)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "f(1)",
        "a.b",
        "[1]",
        "1 if 1 else 2",
        "1 % 2",
        "1/0",
        "9**9**9**9",
        "1e999",
        "'a'*9",
        "True",
        "(" * 150 + "1" + ")" * 150 + "+",
        "1" * 300,
        "lambda: 1",
        "10**400",
        "1+" * 60 + "1",
    ],
)
def test_an_expression_that_is_not_arithmetic_has_no_value(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(text)
