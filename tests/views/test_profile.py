"""Answers of the profile view against MegEngine's own analyzer, at full precision, and where that one crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import answer
from tests.recordings import recording_path
from visualprof.errors import BadParameter

FOLDER = "traces/megengine/profile_analyze"
QUERIES = {
    "-t 5": {"top": "5"},
    "-t 0": {},
    "-t 0 --aggregate-by type --aggregate sum": {"aggregate_by": "type", "aggregate": "sum"},
    "-t 0 --aggregate-by type --aggregate mean": {"aggregate_by": "type", "aggregate": "mean"},
    "-t 5 --order-by memory --min-time 1e-4 --type ConvolutionForward": {
        "top": "5",
        "order_by": "memory",
        "min_time": "1e-4",
        "type": "ConvolutionForward",
    },
    "-t 5 --order-by +time": {"top": "5", "order_by": "+time"},
    "-t 5 --top-end-key kern": {"top": "5", "top_end_key": "kern"},
    "-t 5 --max-time 1e-4": {"top": "5", "max_time": "1e-4"},
    "--print-only host -t 5": {"top": "5", "time": "host"},
}
FILES = ["resnet18_w16.profile.json", "transformer_tiny.profile.json", "lenet.profile.json"]


def table(file: str = FILES[0], **params: str) -> dict[str, Any]:
    return answer("profile", recording_path(f"{FOLDER}/{file}"), **params)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("query", QUERIES)
def test_answers_equal_the_original(file: str, query: str) -> None:
    document = json.loads(recording_path(f"{FOLDER}/oracles.json").read_text())[file][query]
    columns = table(file, **QUERIES[query])["columns"]
    spent = columns["device_self_ns" if "device_self_ns" in columns else "host_self_ns"]
    assert [round(t, 3) for t in spent] == [round(r["time"] * 1e9, 3) for r in document]
    # Operators of equal time stand in the order of the graph here, in that of rounding errors there.
    rows_by_id = {columns["id"][i] or columns["type"][i]: i for i in range(len(spent))}
    ties = {t for t in map(round, spent) if list(map(round, spent)).count(t) > 1}
    for record in document:
        key = record["info"]["id"] if record["info"]["id"] != "N/A" else record["info"]["type"]
        if key not in rows_by_id:
            assert round(record["time"] * 1e9) in ties or round(spent[-1]) == round(record["time"] * 1e9)
            continue
        i = rows_by_id[key]
        for name, column in (
            ("computation", "computation_flo"),
            ("memory", "memory_bytes"),
            ("flops", "flops"),
            ("bandwidth", "bandwidth"),
        ):
            if record[name] is None:
                assert columns[column][i] is None, (key, name)
            else:
                assert columns[column][i] == pytest.approx(record[name], rel=1e-9), (key, name)
        if record["in_shapes"] is not None:
            assert json.loads(columns["in_shapes"][i] or "[]") == record["in_shapes"]
            assert json.loads(columns["out_shapes"][i] or "[]") == record["out_shapes"]


@pytest.mark.parametrize("file", FILES)
def test_totals_equal_the_original(file: str) -> None:
    document = json.loads(recording_path(f"{FOLDER}/oracles.json").read_text())[file]
    totals = table(file)["totals"]
    assert totals["device_ns"] == round(document["total_device_time"] * 1e9)
    assert totals["host_ns"] == round(document["total_host_time"] * 1e9)


def test_totals_of_a_trace_profile() -> None:
    totals = answer("profile", recording_path("traces/megengine/resnet18_w16.trace_get_profile.json"))["totals"]
    assert (totals["device_ns"], totals["host_ns"]) == (289_203_000, 585_381_000)


@pytest.mark.parametrize("aggregate", ["max", "min"])
def test_extremes_work_where_the_original_crashes(aggregate: str) -> None:
    columns = table(aggregate_by="type", aggregate=aggregate)["columns"]
    at = columns["type"].index("ConvolutionForward")
    plain = table(type="ConvolutionForward")["columns"]
    pick = max if aggregate == "max" else min
    assert columns["device_self_ns"][at] == pick(plain["device_self_ns"])
    assert columns["computation_flo"][at] == pick(plain["computation_flo"])
    assert columns["computation_flo"][columns["type"].index("BatchNormForward")] is None


def test_ordering_by_computation_puts_the_unknown_last() -> None:
    result = table(order_by="computation")["columns"]["computation_flo"]
    known_values = [v for v in result if v is not None]
    assert known_values == sorted(known_values, reverse=True)
    assert result[len(known_values) :] == [None] * (len(result) - len(known_values))


def test_input_types_filter_where_the_original_crashes() -> None:
    columns = table(input_dtype="Float32")["columns"]
    assert 0 < len(columns["name"]) < 161
    assert table(input_dtype="Int8")["columns"]["name"] == []


def test_copy_time_of_a_graph_without_copies_is_empty() -> None:
    assert table(copy_time="true")["columns"]["name"] == []


def test_names_are_matched_from_their_start() -> None:
    columns = table(opr_name=r"layer4\.1\.conv", type="ConvolutionForward")["columns"]
    assert set(columns["name"]) == {"layer4.1.conv1.Convolution", "layer4.1.conv2.Convolution"}


def test_two_types_are_either() -> None:
    assert set(table(type="ConvolutionForward, MatrixMul")["columns"]["type"]) == {"ConvolutionForward", "MatrixMul"}


def test_all_operators_in_one_row() -> None:
    columns = table(aggregate="sum")["columns"]
    assert (columns["type"], columns["count"], columns["device_self_ns"]) == (["all"], [161], [14_201_000])
    assert columns["cumulative_ns"] == [14_201_000]
    assert columns["ratio"] == [1.0]


def test_a_wrong_query_names_the_error() -> None:
    with pytest.raises(BadParameter, match="aggregate_by needs aggregate"):
        table(aggregate_by="type")
    with pytest.raises(BadParameter, match="is no regular expression"):
        table(opr_name="(")


def test_unknown_rates_are_null_and_never_infinite() -> None:
    columns = table(order_by="+time")["columns"]
    zero = [i for i, t in enumerate(columns["device_self_ns"]) if t == 0]
    assert zero
    assert all(columns["bandwidth"][i] is None for i in zero)


def test_the_filter_by_input_type_ignores_case_and_counts_unknown_types() -> None:
    result = table(input_dtype="float32")
    assert result["columns"]["name"] == table(input_dtype="Float32")["columns"]["name"] != []
    unknown = table(input_dtype="unknown")["columns"]["name"]
    assert result["unknown_dtypes"] == len(unknown)
    everything = table()["columns"]["name"]
    assert sorted(everything) == sorted([*unknown, *result["columns"]["name"]]), "this model has no other type"
