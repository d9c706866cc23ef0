"""Search requests: constraints, settings, user rows, and validation before anything starts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from visualprof.remote.child.search.sampler import MAX_FITTED_TRIALS, next_setting
from visualprof.remote.child.search.space import Space, apply_setting, search_space, trial_count
from visualprof.remote.child.search.trial import Trial, ranked, read_trials
from visualprof.remote.constraints import parse_constraint
from visualprof.remote.protocol import Input, ModelRef, Request, Search, Spec, Sweep
from visualprof.remote.queue.check.inspect import InspectedModel, Tensor
from visualprof.remote.queue.check.rows import row_errors
from visualprof.remote.queue.check.search import search_errors
from visualprof.remote.queue.check.shapes import Array
from visualprof.remote.queue.draft.forms import DraftSearch
from visualprof.remote.queue.draft.searches import batch_text, parse_search, search_draft


@pytest.mark.parametrize(
    ("text", "field", "sign", "limit"),
    [
        ("p99<5ms", "p99_ns", "<", 5e6),
        (" p50 <= 1.5e-3 s ", "p50_ns", "<=", 1.5e6),
        ("latency<20us", "p50_ns", "<", 2e4),
        ("mean ≤ 7µs", "mean_ns", "<=", 7e3),
        ("memory<2GiB", "rss_bytes", "<", 2 << 30),
        ("size<=3MB", "size_bytes", "<=", 3e6),
        ("error<1e-2", "error", "<", 0.01),
        ("error<1%", "error", "<", 0.01),
        ("throughput>=1000/s", "samples_per_s", ">=", 1000),
        ("energy<12mJ", "energy_j_per_sample", "<", 0.012),
    ],
)
def test_a_constraint_is_a_figure_a_sign_and_a_number_with_its_unit(
    text: str, field: str, sign: str, limit: float
) -> None:
    found = parse_constraint(text)
    assert (found.field, found.sign) == (field, sign)
    assert found.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p98<5ms", "there is no figure 'p98'"),
        ("p99<5", "p99 needs a unit"),
        ("p99<5MiB", "'MiB' is no unit of p99"),
        ("memory<2%", "'%' is no unit of memory"),
        ("p99<-5ms", "is no constraint"),
        ("p99==5ms", "is no constraint"),
        ("p99<5ms; import os", "is no constraint"),
        ("__import__('os').system('x')<1", "is no constraint"),
        ("p99<nan ms", "is no constraint"),
        ("p99<5ms" + " " * 100, "is no constraint"),
        ("", "is no constraint"),
    ],
)
def test_an_invalid_constraint_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as told:
        parse_constraint(text)
    assert told.value.args[1]


def test_an_unknown_metric_violates_constraints() -> None:
    one = parse_constraint("p99<5ms")
    assert (one.is_satisfied({"p99_ns": 4e6}), one.is_satisfied({"p99_ns": 5e6}), one.is_satisfied({})) == (
        True,
        False,
        None,
    )
    assert one.excess({"p99_ns": 7.5e6}) == pytest.approx(0.5)
    assert one.excess({"p99_ns": 5e6}) > 0, "missed by nothing is missed"
    assert one.excess({"p99_ns": 4e6}) <= 0
    assert one.excess({}) == 1.0
    least = parse_constraint("throughput>100")
    assert least.excess({"samples_per_s": 75}) == pytest.approx(0.25)
    trial = Trial(0, {}, figures={"p99_ns": None})
    trial.judge([one])
    assert (trial.state, trial.why) == ("infeasible", "p99<5ms: unknown")


def test_the_settings_are_a_grid_in_which_each_has_a_number() -> None:
    space = search_space(Search("latency", {"threads": ["1", "2"], "hint": ["a", "b", "c"]}), [1, 8])
    assert space.size == 12
    settings = [space.setting(at) for at in range(12)]
    assert settings[0] == {"batch": "1", "threads": "1", "hint": "a"}
    assert settings[11] == {"batch": "8", "threads": "2", "hint": "c"}
    assert len({tuple(one.items()) for one in settings}) == 12
    assert space.ordinal() == [True, True, False]
    assert "batch" not in search_space(Search("latency", {"threads": ["1", "2"]}), [4]).axes
    spec = apply_setting(Spec("s", "onnxruntime", threads=4), settings[11] | {"streams": "2"}, ["hint"], {"x": "y"})
    assert (spec.threads, spec.precision, spec.options) == (2, "", {"x": "y", "hint": "c"})


@pytest.mark.parametrize(
    ("trials", "size", "total"), [(0, 8, 8), (0, 120, 32), (0, 240, 48), (10, 240, 10), (500, 240, 240)]
)
def test_few_settings_are_all_tried_and_of_many_a_fifth(trials: int, size: int, total: int) -> None:
    assert trial_count(Search("latency", trials=trials), size) == total


def chosen(axes: list[int], costs: Callable[[int], float | None], trials: int, **excess: Any) -> list[dict[str, Any]]:
    """Trials of a search over ordered axes, with an excess of each where it has a function of that."""
    tried = list[dict[str, Any]]()
    for _ in range(trials):
        at = next_setting(axes, [True] * len(axes), 3, tried)
        tried.append({"at": at, "cost": costs(at), "excess": [each(at) for each in excess.values()]})
    return tried


def test_every_setting_is_tried_once_and_the_order_is_repeated_by_the_seed() -> None:
    for costs in (lambda at: 1.0 + at, lambda at: 1.0, lambda at: None):
        numbers = [one["at"] for one in chosen([5, 2], costs, 10)]
        assert sorted(numbers) == list(range(10))
        assert numbers == [one["at"] for one in chosen([5, 2], costs, 10)]


def test_a_fifth_of_the_settings_finds_the_best_of_effects_that_multiply() -> None:
    """Costs of 8 x 5 x 4 settings are products of one number an axis: the best is the product of the least ones."""
    effects = [8.0, 5, 4, 3, 2, 1, 2, 3], [2.0, 1, 3, 4, 5], [4.0, 3, 1, 2]

    def cost(at: int) -> float:
        return math.prod(own[place] for own, place in zip(effects, np.unravel_index(at, (8, 5, 4)), strict=True))

    assert min(one["cost"] for one in chosen([8, 5, 4], cost, 32)) == 1.0


def test_failing_and_infeasible_settings_are_soon_avoided() -> None:
    """Costs fall with the number; beyond 60 of 100 a constraint is missed, and every tenth place of an axis fails."""
    tried = chosen([10, 10], lambda at: None if at % 10 == 9 else 200.0 - at, 25, memory=lambda at: (at - 60) / 60)
    best = min(one["cost"] for one in tried if one["cost"] and one["excess"][0] <= 0)
    assert best <= 200 - 57, "58 is the best: 59 fails, and from 60 on too much memory is used"
    late = tried[12:]
    assert sum(one["at"] > 69 for one in late) <= 3
    assert sum(one["cost"] is None for one in late) <= 3


@pytest.mark.slow
def test_a_grid_of_a_million_settings_and_a_long_search_are_fast() -> None:
    tried = [{"at": at, "cost": 1.0 + at, "excess": []} for at in range(3 * MAX_FITTED_TRIALS)]
    at = next_setting([100, 100, 100], [True, False, True], 0, tried)
    assert 3 * MAX_FITTED_TRIALS <= at < 1_000_000


def test_the_best_is_the_cheapest_that_is_feasible_and_trials_read_as_they_were_written() -> None:
    def trial(at: int, state: Any, cost: float | None) -> Trial:
        return Trial(at, {}, state, ratio=None if cost is None else {"value": cost, "low": cost, "high": cost})

    trials = [
        trial(0, "feasible", 0.8),
        trial(1, "infeasible", 0.2),
        trial(2, "feasible", 0.5),
        trial(3, "failed", None),
    ]
    assert [one.at for one in ranked(trials)] == [2, 0]
    assert read_trials([vars(one) | {"newer": 1} for one in trials]) == trials


def test_a_search_is_typed_and_reads_the_same_again() -> None:
    typed = DraftSearch(
        "throughput", {"batch": "1:8", "threads": "1:4", "precision": "f32, bf16"}, "p99<5ms, memory<2GiB"
    )
    search, errors = parse_search(typed, "n")
    assert not errors
    assert search.over == {"threads": ["1", "2", "4"], "precision": ["f32", "bf16"]}
    assert search.where == ["p99<5ms", "memory<2GiB"]
    assert batch_text(typed, "n") == "1:8"
    again = search_draft(search)
    assert again == replace(typed, over={"threads": "1:4", "precision": "f32, bf16"})
    assert parse_search(DraftSearch(trials="x"), "n")[0] == Search(), "nothing without an objective"
    _, errors = parse_search(DraftSearch("latency", {"threads": "many"}, trials="1.5", budget_s="-1"), "n")
    assert [error.field for error in errors] == ["search.over.threads", "search.trials", "search.budget_s"]


def problems(search: Search, backend: str = "onnxruntime", sizes: int = 2) -> list[str]:
    model = InspectedModel(
        format="onnx", inputs=[Tensor("x", "float32", ["n", 3])], outputs=[], dims={}, backends=[backend], warnings=[]
    )
    request = Request("k", ModelRef("0" * 64, "m.onnx"), [Spec("s", backend)], search=search)
    request = replace(request, sweep=Sweep("n", list(range(1, sizes + 1))))
    return [f"{e.field}: {e.error}" for e in search_errors(request, model)]


def test_settings_that_a_runtime_does_not_have_are_refused_by_name() -> None:
    assert problems(Search("latency", {"threads": ["1", "2"], "streams": ["1", "4"], "optimization": ["all"]})) == []
    for over, why in (
        ({"optimizations": ["all"]}, "search.over.optimizations: onnxruntime has no such setting"),
        ({"optimization": ["most"]}, "search.over.optimization: 'most' is not a valid value for onnxruntime"),
        ({"precision": ["f8"]}, "search.over.precision: 'f8' is not a valid value for onnxruntime"),
        ({"threads": ["0"]}, "search.over.threads: '0' is not a valid value for onnxruntime"),
        ({"threads": ["٣"]}, "search.over.threads: '٣' is not a valid value for onnxruntime"),
        ({"conversion": ["none", "rm_rf"]}, "search.over.conversion: 'rm_rf' is not a valid value for onnxruntime"),
        ({"threads": ["1", "1"]}, "search.over.threads: has 2 values"),
        ({"../../x\n": ["1"]}, "search.over.../../x\n: onnxruntime has no such setting"),
        ({"__class__": ["1"]}, "search.over.__class__: onnxruntime has no such setting"),
    ):
        assert problems(Search("latency", over)) == [why]
    assert problems(Search("latency", {"streams": ["1", "2"]}), "megengine") == [
        "search.over.streams: '2' is not a valid value for megengine"
    ]
    assert problems(Search("size", {"threads": ["1", "2"]})) == [
        "search.objective: the size differs by conversions alone"
    ]
    assert problems(Search("latency"), sizes=1) == ["search.over: has one setting alone"]
    assert problems(Search("latency", where=["p99<5", "p99<1ms"])) == ["search.where[0]: p99 needs a unit"]


def test_a_grid_has_a_bound() -> None:
    values = [str(n) for n in range(1, 65)]
    wide = {"threads": values, "streams": values}
    assert problems(Search("latency", {"threads": values})) == []
    assert problems(Search("latency", wide), sizes=512)[-1] == "search.over: has 2,097,152 settings"


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"x": ("float32", 9, 4), "scale": ("float32",)}, ""),
        ({"x": ("float16", 9, 3, 4), "scale": ("float32",)}, ""),  # a whole input of any batch in each row
        ({"x": ("float64", 9, 4), "scale": ("float32",)}, "the data of 'x' are float64, the model wants float32"),
        ({"x": ("float32", 9, 5), "scale": ("float32",)}, "have the shape [9, 5], the model wants ['n', 4]"),
        ({"x": ("float32", 9), "scale": ("float32",)}, "have 1 dimensions, the model wants 2"),
        ({"x": ("float32", 9, 4)}, "the data have no array 'scale'"),
        ({"x": ("float32", 9, 4), "scale": ("float32",), "y\n": ("bool", 9)}, "the model has no input 'y\\n'"),
        ({"x": ("float32", 9, 4), "scale": ("float32", 8)}, "the arrays have no common number of rows"),
    ],
)
def test_user_rows_must_fit_the_inputs(arrays: dict[str, tuple[Any, ...]], why: str) -> None:
    inputs = [Input("x", "float32", ["n", 4]), Input("scale", "float32", [])]
    known = {name: Array("inputs.npz", dtype, list(shape)) for name, (dtype, *shape) in arrays.items()}
    found = [error.error for error in row_errors(inputs, {}, {"n"}, known)]
    assert (why in found[0] and len(found) == 1) if why else not found


def test_a_dimension_that_has_a_size_is_compared() -> None:
    inputs = [Input("x", "int64", ["n", "seq"])]
    known = {"x": Array("x.npy", "int64", [9, 32])}
    assert not list(row_errors(inputs, {"seq": 32}, {"n"}, known))
    assert list(row_errors(inputs, {"seq": 64}, {"n"}, known))


def test_a_grid_without_axes_is_one_setting() -> None:
    assert (Space({}).size, Space({}).setting(0)) == (1, {})
