"""Compare the time of an operator alone with its time in the run and with the best possible time of its device."""

from typing import Any


def comparison_lines(result: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """Return lines with the operator's time alone, in the run, and at the device's peak."""
    side = "device" if result["profiled_device_ns"] else "host"
    profiled, before, peak = result[f"profiled_{side}_ns"], recorded.get(f"{side}_ns"), recorded.get("peak_ns")
    spread = f"{result['min_ns'] / 1e3:,.2f} to {result['max_ns'] / 1e3:,.2f} us"
    empty_call = f"an empty call {result['clock_ns'] / 1e3:,.2f} us"
    lines = [
        f"{result['overload']} on {result['device']}, {result['runtime']}, {result['threads']} threads",
        _line("alone", result["median_ns"], f"median of {result['repeats']}, {spread}; {empty_call}"),
    ]
    if profiled:
        lines.append(_line("in a profiler", profiled, f"{side} time, as the run was recorded"))
    if before:
        on = f" on {recorded['device']}" if recorded.get("device") else ""
        ratio = f", {before / profiled:.2f} times as long" if profiled else ""
        lines.append(_line("in the run", before, f"{side} time, median of {recorded['calls']} calls{on}{ratio}"))
    if peak:
        share = f", {peak / profiled:.0%} of it reached" if profiled else ""
        lines.append(_line("at the peak", peak, f"of the device of the run{share}"))
    if result["assumed"]:
        lines.append(f"not in the profile, assumed: {', '.join(result['assumed'])}")
    return [*lines, "alone: inputs are in caches, clocks may be higher, nothing else runs; values are random"]


def _line(label: str, ns: float, more: str) -> str:
    return f"{label:13} {ns / 1e3:12,.2f} us   {more}"
