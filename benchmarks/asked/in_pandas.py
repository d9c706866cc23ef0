"""Answer the questions with pandas. Run as a program: `python -m benchmarks.asked.in_pandas TABLES.pickle`."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.asked.answering import answer_all
from benchmarks.asked.questions import LIMIT_NS, LOADING, ONCE, PYTHON, RANKS, SERVER, TRAINING

pd: Any = importlib.import_module("pandas")
np: Any = importlib.import_module("numpy")


def _total(frame: Any, keys: list[str]) -> Any:
    """Return number and sum of the durations by some columns; an unknown key is a group, too."""
    return frame.groupby(keys, dropna=False, sort=False)["dur"].agg(["size", "sum"]).reset_index()


def _union(spans: Any) -> int:
    """Return the time that intervals cover."""
    if not len(spans):
        return 0
    ordered = spans.sort_values("ts")
    start, end = ordered["ts"].to_numpy(), (ordered["ts"] + ordered["dur"]).to_numpy()
    before = np.concatenate([[start[0]], np.maximum.accumulate(end)[:-1]])
    return int(np.maximum(0, end - np.maximum(start, before)).sum())


def _inside(kernel: Any, ranges: Any) -> Any:
    """Return a row per kernel and user range around its launch."""
    level, levels = kernel[["name", "ts", "dur", "range_id"]].reset_index(names="kernel"), []
    while len(level := level.dropna(subset="range_id")):
        level = level.merge(ranges[["id", "name", "parent_id"]], left_on="range_id", right_on="id", suffixes=("", "_r"))
        levels.append(level)
        level = level[["kernel", "name", "ts", "dur"]].assign(range_id=level["parent_id"])
    return pd.concat(levels)


def _range_kernels(t: Any) -> Any:
    inside = _inside(t["kernel"], t["range"])
    inside = inside[inside["name_r"].str.contains("optimizer", regex=False)]
    return _total(inside.drop_duplicates(["kernel", "name_r"]), ["name_r", "name"])


def _between_markers(t: Any) -> Any:
    inside = _inside(t["kernel"].assign(name=""), t["range"])
    inside["end"] = inside["ts"] + inside["dur"]
    spans = inside.groupby(["id", "name_r"]).agg(start=("ts", "min"), end=("end", "max")).reset_index()
    first, second = (spans[spans["name_r"].str.contains(n, regex=False)] for n in ("forward", "optimizer"))
    pairs = first.merge(second, how="cross", suffixes=("", "_2"))
    pairs = pairs[(pairs["start_2"] >= pairs["start"]) & (pairs["id"] != pairs["id_2"])]
    ends = pairs.groupby(["id", "name_r", "name_r_2", "start"])["end_2"].min().reset_index()
    return ends.assign(dur=ends["end_2"] - ends["start"])[["name_r", "name_r_2", "dur"]]


def _top_kernels(t: Any) -> Any:
    durations = t["kernel"].groupby("name")["dur"]
    table = durations.agg(["size", "sum", "mean"])
    return table.assign(p99=durations.quantile(0.99), share=table["sum"] / table["sum"].sum()).reset_index()


def _source_lines(t: Any) -> Any:
    op = t["op"].dropna(subset="line")
    return op.groupby(["line", "name"])["self_dur"].agg(["size", "sum"]).reset_index()


def _gemm_shapes(t: Any) -> Any:
    op = t["op"]
    is_gemm = op["name"].str.contains(r"(?:^|::|_)(?:mm|addmm|bmm|baddbmm|matmul|linear|gemm)(?:_v2)?$", case=False)
    chosen = op[is_gemm & (op["device_self"] > 0)]
    return chosen.groupby(["name", "shapes"])["device_self"].agg(["size", "sum"]).reset_index()


def _exposed(ranks: list[Any]) -> Any:
    rows: list[tuple[Any, ...]] = []
    for rank, t in enumerate(ranks):
        for step, kernels in t["kernel"].groupby("step"):
            comm = kernels[kernels["category"] == "comm"]
            compute = kernels[kernels["category"] == "kernel"]
            if len(comm):
                rows.append((rank, step, _union(comm), _union(kernels) - _union(compute)))
    return pd.DataFrame(rows)


def _collectives(ranks: list[Any]) -> Any:
    rows = [(rank, t["kernel"][t["kernel"]["category"] == "comm"]["dur"]) for rank, t in enumerate(ranks)]
    return pd.DataFrame([(rank, len(dur), dur.median()) for rank, dur in rows])


def _gaps(t: Any) -> Any:
    work = t["work"].sort_values("ts")
    busy = np.concatenate([[t["range"]["ts"].min()], np.maximum.accumulate(work["end"].to_numpy())[:-1]])
    gap = work["ts"].to_numpy() - busy
    is_late = work["call_ts"].to_numpy() > busy
    cause = np.where(is_late, "host_wait", np.where(gap < 30_000, "kernel_wait", "other"))
    frame = pd.DataFrame({"cause": cause, "gap": gap})
    return frame[frame["gap"] > 0].groupby("cause")["gap"].agg(["size", "sum", "max"]).reset_index()


def _launch_delays(t: Any) -> Any:
    delays = t["kernel"].groupby(["device", "stream"])["delay"]
    table = delays.agg(["count", "median"])
    return table.assign(p99=delays.quantile(0.99), most=delays.max()).reset_index()


def _loader_waits(t: Any) -> Any:
    waits = t["range"][t["range"]["name"].str.contains("DataLoader", regex=False)]
    waits = waits.assign(dur=waits["end"] - waits["ts"])
    rows = [
        (row.step, row.dur, _union(waits[(waits["ts"] >= row.ts) & (waits["ts"] < row.ts + row.dur)]))
        for row in t["step"].itertuples()
    ]
    return pd.DataFrame(rows)


def _compare(base: Any, new: Any) -> Any:
    tables = [t["kernel"].groupby("name")["dur"].agg(["sum", "size"]) for t in (base, new)]
    both = tables[0].join(tables[1], how="outer", lsuffix="_base", rsuffix="_new")
    both = both.fillna({"size_base": 0, "size_new": 0})
    return both[["sum_base", "sum_new", "size_base", "size_new"]].reset_index()


def _peak(t: Any) -> Any:
    events = t["allocation"]
    until = events[events["ts"] <= events.loc[events["total"].idxmax(), "ts"]]
    last = until.groupby("address").tail(1)
    return last[last["bytes"] > 0].groupby("op", dropna=False)["bytes"].agg(["size", "sum"]).reset_index()


def _module_memory(t: Any) -> Any:
    events = t["allocation"]
    allocated = events[events["bytes"] > 0].groupby("module", dropna=False)["bytes"]
    return allocated.agg(["size", "sum", "max"]).reset_index()


def _kernel_pairs(t: Any) -> Any:
    kernel = t["kernel"].sort_values(["stream", "ts"])
    follower = kernel.groupby("stream")[["name", "ts", "dur"]].shift(-1)
    gap = (follower["ts"] - kernel["ts"] - kernel["dur"]).clip(lower=0)
    pairs = pd.DataFrame({"name": kernel["name"], "next": follower["name"], "dur": kernel["dur"] + follower["dur"]})
    pairs = pairs.assign(gap=gap)[(kernel["dur"] < LIMIT_NS) & (follower["dur"] < LIMIT_NS)]
    grouped = pairs.groupby(["name", "next"])
    return grouped.agg(n=("dur", "size"), total=("dur", "sum"), gap=("gap", "sum")).reset_index()


def _kernels_where(t: Any, column: str, text: str, keys: list[str]) -> Any:
    kernel = t["kernel"]
    return _total(kernel[kernel[column].str.contains(text, regex=False, na=False)], keys)


def answers(data: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the functions that answer, by question."""
    training, loading, server, python, once = (data[name][0] for name in (TRAINING, LOADING, SERVER, PYTHON, ONCE))
    return {
        "layer_kernels": lambda: _kernels_where(
            training, "module_path", "Linear_1", ["module_path", "backward", "name"]
        ),
        "range_kernels": lambda: _range_kernels(training),
        "between_markers": lambda: _between_markers(training),
        "top_kernels": lambda: _top_kernels(training),
        "source_lines": lambda: _source_lines(python),
        "gemm_shapes": lambda: _gemm_shapes(training),
        "launches": lambda: training["kernel"][["dur", "name", "op", "call"]],
        "argument": lambda: _total(training["kernel"], ["name", "grid"]),
        "chosen_steps": lambda: _kernels_where(training, "step", "3", ["step", "name"]),
        "exposed_communication": lambda: _exposed(data[RANKS]),
        "collectives": lambda: _collectives(data[RANKS]),
        "gaps": lambda: _gaps(server),
        "launch_delays": lambda: _launch_delays(training),
        "loader_waits": lambda: _loader_waits(loading),
        "compare_traces": lambda: _compare(loading, training),
        "phases": lambda: _total(server["kernel"], ["phase", "name"]),
        "peak_allocations": lambda: _peak(once),
        "module_memory": lambda: _module_memory(once),
        "outermost_operators": lambda: training["op"][training["op"]["outermost"]][["name", "dur"]],
        "kernel_pairs": lambda: _kernel_pairs(training),
    }


def frames(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of one recording as frames."""
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}


def rows(frame: Any) -> list[list[Any]]:
    """Return the rows of a frame as plain values."""
    return [list(row) for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)]


if __name__ == "__main__":
    answer_all(frames, answers, rows)
