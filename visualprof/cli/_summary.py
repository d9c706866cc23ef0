"""Summarize a comparison or a run as text: for a terminal, and as Markdown for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from visualprof.cli._sentences import conclusions, explanation, lever, saving, severity, title
from visualprof.cli._terminal import cell, render
from visualprof.cli.view import width
from visualprof.mcp.definitions import texts
from visualprof.views.answers.kinds import Column, Kind
from visualprof.views.answers.table import Table
from visualprof.views.measure.steps.parts import STEP_PARTS

if TYPE_CHECKING:
    from visualprof.views.diff.answer import DiffAnswer, DiffCause, DiffNote, DiffRun
    from visualprof.views.findings import FindingsAnswer
    from visualprof.views.overview import OverviewAnswer
    from visualprof.views.plan import PlanAnswer

ROWS = 10
LONGEST = 60  # characters of a name in Markdown
TOP = {  # columns of a run's tables that must have values
    "operator": ("name", "calls", "device_self_ns", "host_self_ns"),
    "kernel": ("name", "calls", "total_ns", "mean_ns"),
}
COLUMNS = {  # columns of each table
    "phases": (
        "phase",
        "base_steps",
        "new_steps",
        "base_tokens",
        "new_tokens",
        "base_ns",
        "new_ns",
        "delta_ns",
        "delta_ratio",
        "base_device_ns",
        "new_device_ns",
        "status",
        "significant",
    ),
    "parts": ("part", "base_ns", "base_share_ratio", "new_ns", "new_share_ratio", "delta_ns", "significant"),
    "rows": (
        "name",
        "part",
        "base_ns",
        "base_share_ratio",
        "new_ns",
        "new_share_ratio",
        "delta_ns",
        "delta_ratio",
        "status",
        "significant",
    ),
    "memory": ("name", "what", "base_bytes", "new_bytes", "delta_bytes", "status"),
    "evaluation": (
        "name",
        "batch",
        "concurrency",
        "offered_per_s",
        "figure",
        "base_value",
        "new_value",
        "delta_ratio",
        "significant",
    ),
}
NOTES = {
    "same_file": "both are the same file",
    "growing": "a file ends in the middle; it may still be written",
    "no_steps": "no steps are marked: the whole recordings are compared",
    "few_steps": "under 5 steps on a side ({base}, {new}): chance cannot be told from change",
    "framework": "different frameworks, compared by families of operators: {base}, {new}",
    "version": "different versions: {base}, {new}",
    "device": "different devices: {base}, {new}",
    "host": "different machines: {base}, {new}",
    "batch": "different batches: {base}, {new}",
    "inputs": "different inputs: [{base}], [{new}]",
    "load": "steps with different loads: {base}, {new} tokens on average",
    "precision": "different precision: {base}, {new}",
    "host_busy": "the host was busy: {base}, {new}",
    "drift": "all rows of the device share a change of {ratio:+.1%}, as clocks make it; none counts as changed for it",
    "pace": "all rows of the host share a change of {ratio:+.1%}, as other work makes it; none counts as changed",
    "outliers": "a few outlying steps move the mean further than the typical step",
}


def table(answer: DiffAnswer) -> str:
    """Return the comparison for a terminal."""
    lines = [f"{side}: {_plain(_run(run))}" for side, run in (("base", answer.base), ("new ", answer.new))]
    lines += [_step(answer), *(f"cause: {_plain(cause.name)}{_plain(_cause(cause))}" for cause in answer.causes)]
    lines += [f"note: {_plain(note)}" for note in _notes(answer.notes)]
    blocks = ["\n".join(filter(None, lines)) + "\n"]
    blocks += [render(shown, "", width(), ROWS * 2) for shown in _tables(answer)]
    if answer.not_explained_ns is not None and answer.view == "overview":
        blocks.append(f"not explained: {_delta('ns', answer.not_explained_ns)}\n")
    return "\n".join(blocks)


def markdown(answer: DiffAnswer, failed: Sequence[str], warnings: Sequence[str] = ()) -> str:
    """Return the comparison for a comment on a pull request: at most ten rows per table, names as code."""
    lines = ["### visualprof\n", *(f"- :x: {_escaped(sentence)}" for sentence in failed)]
    lines += [*(f"- :warning: {_escaped(warning)}" for warning in warnings), "", *_change(answer)]
    return "\n".join(lines) + "\n"


def run_markdown(
    path: str,
    overview: OverviewAnswer,
    *,
    findings: FindingsAnswer | None,
    plan: PlanAnswer | None,
    tops: Mapping[str, Table[Any]],
    change: DiffAnswer | None,
    warnings: Sequence[str] = (),
) -> str:
    """Return a run as Markdown: its step, findings, plan, the longest rows, and the change since a baseline.

    Args:
        tops: Tables by view.
    """
    lines = ["### visualprof\n", _headline(path, overview)]
    lines += [f"- :warning: {_escaped(warning)}" for warning in warnings]
    lines += [_markdown(_average(overview))] if overview.steps.name else []
    stepped = overview.headline.step_median_ns is not None
    lines += _findings(findings, plan, stepped) if findings is not None else []
    lines += _plan(plan) if plan is not None else []
    for view, shown in tops.items():
        filled = [
            name for name in TOP[view] if any(shown.columns_by_name().get(name, ()))
        ]  # without a device, device columns are empty
        lines += [f"\n#### {view.title()}s", _markdown(_columns(shown, filled))]
    if change is not None:
        lines += ["#### Since the base\n", *_change(change)]
    return "\n".join(lines) + "\n"


def _headline(path: str, overview: OverviewAnswer) -> str:
    headline, environment = overview.headline, overview.environment
    devices = dict.fromkeys(device.name for device in overview.devices if device.name)
    facts = ", ".join(filter(None, [environment.framework, environment.producer, *devices, _steps(environment.steps)]))
    step = ""
    if headline.step_median_ns is not None:
        median, least, most = (
            cell("ns", ns) for ns in (headline.step_median_ns, headline.step_least_ns, headline.step_most_ns)
        )
        step = f"step {median} ({least} to {most}), "
    return f"{step}recorded {cell('ns', environment.duration_ns)}  \n{_code(path)}, {_escaped(facts)}\n"


def _average(overview: OverviewAnswer) -> Table[dict[str, Column]]:
    """Return the parts of the mean step that are not empty."""
    step = overview.average_step
    parts = {part: getattr(step, f"{part}_ns") for part in STEP_PARTS}
    parts = {part: ns for part, ns in parts.items() if ns}
    shares = [ns / step.total_ns for ns in parts.values()]
    names = [texts()["category"][part] for part in parts]
    columns: dict[str, Column] = {"part": names, "mean_ns": list(parts.values()), "share_ratio": shares}
    return Table(columns=columns, kinds={"part": "word", "mean_ns": "ns", "share_ratio": "ratio"})


def _findings(answer: FindingsAnswer, plan: PlanAnswer | None, stepped: bool) -> Iterator[str]:
    """Yield the findings with the sentences of the web UI, or remarks if the answer has no findings."""
    yield f"\n#### {texts()['overview']['findings']}\n"
    for remark in answer.remarks if not answer.findings else ():
        yield f"- **{title(remark.id)}**: {_escaped(explanation(answer, remark, stepped))}"
    for finding in answer.findings:
        text = _escaped(" ".join(filter(None, [saving(finding, stepped), explanation(answer, finding, stepped)])))
        remedy = f" `{finding.code}`" if finding.code else ""
        yield f"- **{title(finding.id)}** ({severity(finding)}): {text}{remedy}"
    yield from (f"- {_escaped(sentence)}" for sentence in conclusions(answer, plan))


def _plan(answer: PlanAnswer) -> Iterator[str]:
    """Yield the changes of the plan with the step time after each."""
    rows = answer.rungs.columns
    steps = [row for row in zip(rows.lever, rows.step_ns, rows.gain_ns, rows.code, strict=True) if row[1] is not None]
    if steps:
        yield f"\n#### Plan: step {cell('ns', answer.baseline_ns)}\n"
    for number, (name, step_ns, gain_ns, code) in enumerate(steps, 1):
        remedy = f": `{code}`" if code else ""
        gain = f"predicted step {cell('ns', step_ns)} (-{cell('ns', gain_ns)})"
        yield f"{number}. **{lever(name)}**, {gain}{remedy}"


def _change(answer: DiffAnswer) -> Iterator[str]:
    runs = [f"{side} {_code(run.path)}" for side, run in (("base", answer.base), ("new", answer.new))]
    yield f"{_step(answer) or answer.view}  \n{', '.join(runs)}\n"
    yield from (f"- cause: {_code(cause.name)}{_escaped(_cause(cause))}" for cause in answer.causes)
    yield from (f"- {_escaped(note)}" for note in _notes(answer.notes))
    yield from map(_markdown, _tables(answer))
    if answer.not_explained_ns and answer.view == "overview":
        yield f"Not explained by rows: {_delta('ns', answer.not_explained_ns)}"


def _run(run: DiffRun) -> str:
    facts = [f"{run.framework} {run.version}".strip(), run.device, _steps(run.steps)]
    return f"{run.path} ({', '.join(filter(None, facts))})"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count > 1)}" if count else ""


def _step(answer: DiffAnswer) -> str:
    step = answer.step
    if step is None:
        return ""
    share = f" ({step.median_delta_ratio:+.1%})" if step.median_delta_ratio is not None else ""
    subject = f"{answer.phase} step" if answer.phase else "step"
    base, new = cell("ns", step.base_median_ns), cell("ns", step.new_median_ns)
    sentence = f"{subject} {base} -> {new}: {_delta('ns', step.median_delta_ns)}{share}"
    mean = f"mean step {cell('ns', step.base_ns)} -> {cell('ns', step.new_ns)}"
    if step.significant is None or step.low_ns is None or step.high_ns is None:
        return f"{sentence}; too few steps to tell it from chance; {mean}"
    between = f"typical step {_delta('ns', step.low_ns)} to {_delta('ns', step.high_ns)} (99 %)"
    sure = "significant" if step.significant else f"not significant (seen from {step.detectable_ratio:.1%} on)"
    if step.attributed_to_load:
        rows = answer.rows.columns.significant
        others = f"; {sum(map(bool, rows))} significant rows changed by more than the others" if any(rows) else ""
        sure = f"attributed to load: the rows changed together{others}"
    return f"{sentence}, {sure}; {between}; {mean}"


def _cause(cause: DiffCause) -> str:
    """Return the text after the name of a cause: its shares of the mean step, its change, and its certainty."""
    part = f" ({cause.part})" if cause.part not in (None, cause.name) else ""
    between = f"95 %: {_delta('ns', cause.low_ns)} to {_delta('ns', cause.high_ns)}"
    sure = "significant" if cause.certainty == "significant" else "likely, but within noise by itself"
    return (
        f"{part}: {cell('ratio', cause.base_share_ratio)} -> {cell('ratio', cause.new_share_ratio)} of the mean step, "
        f"{_delta('ns', cause.delta_ns)} ({between}), {sure}"
    )


def _notes(notes: Iterable[DiffNote]) -> Iterator[str]:
    for note in notes:
        yield NOTES[note.id].format(base=note.base or "-", new=note.new or "-", ratio=note.ratio or 0.0)


def _tables(answer: DiffAnswer) -> Iterator[Table[dict[str, Column]]]:
    """Yield the tables that have rows, with the columns that people read."""
    for name, columns in COLUMNS.items():
        shown: Table[Any] | None = getattr(answer, name)
        if shown is not None and len(shown):
            yield _with_units(_columns(shown, columns)) if name == "evaluation" else _columns(shown, columns)


def _with_units(shown: Table[dict[str, Column]]) -> Table[dict[str, Column]]:
    """Return a table of measurements with their values as text: rates, and times with a unit."""
    kinds: list[Kind] = [
        "count" if str(figure).endswith("_s") or figure == "qps" else "ns" for figure in shown.columns["figure"]
    ]
    values: dict[str, Column] = {
        name: ["" if value is None else cell(kind, value) for kind, value in zip(kinds, column, strict=True)]
        for name, column in shown.columns.items()
        if name.endswith("_value")
    }
    return Table(columns={**shown.columns, **values}, kinds={**shown.kinds, **dict.fromkeys(values, "text")})


def _columns(shown: Table[Any], wanted: Sequence[str]) -> Table[dict[str, Column]]:
    columns = shown.columns_by_name()
    return Table(columns={key: columns[key] for key in wanted if key in columns}, kinds=shown.kinds)


def _markdown(shown: Table[dict[str, Column]]) -> str:
    """Return the first rows of a table."""
    kinds: dict[str, Kind] = {name: shown.kinds.get(name, "text") for name in shown.columns}
    headings = [name.rpartition("_")[0] if kinds[name] in ("ns", "bytes", "ratio") else name for name in kinds]
    lines = ["", f"| {' | '.join(h.replace('delta', 'change') for h in headings)} |"]
    lines.append(f"|{'|'.join(map(_rule, kinds.values()))}|")
    for i in range(min(len(shown), ROWS)):
        cells = (_cell(name, kinds[name], values[i]) for name, values in shown.columns.items())
        lines.append(f"| {' | '.join(cells)} |")
    if len(shown) > ROWS:
        lines.append(f"\n... {len(shown) - ROWS:,} more rows")
    return "\n".join([*lines, ""])


def _rule(kind: Kind) -> str:
    return "---" if kind in ("name", "text", "word") else "--:"


def _cell(name: str, kind: Kind, value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    if value is None or value != value:
        return "–"
    if kind == "name":
        return _code(value)
    return _delta(kind, value) if name.startswith("delta_") else _escaped(cell(kind, value))


def _delta(kind: Kind, value: float) -> str:
    return f"{'+' if value > 0 else ''}{cell(kind, value)}"


def _code(text: str) -> str:
    """Return a name of the profiled program as code, so that it cannot become a link, a mention or another cell."""
    short = text if len(text) <= LONGEST else f"{text[: LONGEST - 12]}…{text[-11:]}"
    return f"`{_plain(short).replace('`', chr(39)).replace('|', '/')}`"


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|@" else c for c in _plain(text))


def _plain(text: str) -> str:
    return cell("text", text)
