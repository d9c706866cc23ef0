"""Find steps among the ranges of a program, by their names or by a pattern that the user chooses.

Source: docs/views/overview.md#step-ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Steps, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.step_attribution import attribute_steps

MAX_PATTERN_CHARS, MAX_NAME_CHARS = 200, 200
MAX_LISTED_NAMES = 20
MAX_STEP_NAMES = 20  # of names without their numbers, only those with the most time are considered
# `ProfilerStep#5`, `step 5`, `training_step_5`, `batch_5`, `Iteration: 5`, `epoch 1 step 5/100`
_STEP = pattern(
    r"^(?:epoch[ _#:=\[]*\d+\]?[ _,;:/.-]*)?([a-z][\w .:/-]*?)?(?:step|iteration|iter|batch)[ _#:=\[-]*(\d+)\]?"
    r"(?:/\d+)?$",
    re.IGNORECASE,
)
# Numbered ranges inside a step: a pass, a part of the batch, a phase of a server, a timestep of a diffusion model
_PART_OF_STEP = pattern(
    r"forward|fwd|backward|bwd|optim|micro|sub|time|inner|denois|decod|prefill|sampl|load|fetch|next|copy|prepare|"
    r"schedul|grad|accum|reduce|solver|layer|diffusion",
    re.IGNORECASE,
)
_DECORATION = " #*<>|=-"
_NUMBER = pattern(r"(\d+)\D*$")
_RANGES = (Category.ANNOTATION, Category.OP, Category.STEP)


def step_label(name: str) -> str | None:
    """Return the step number in the name of a range, `None` if the name is not that of a step."""
    match = _STEP.match(name.strip(_DECORATION)) if len(name) <= MAX_NAME_CHARS else None
    return match[2] if match and not (match[1] and _PART_OF_STEP.search(match[1])) else None


def named_steps(
    strings: Sequence[str], name: Ids, category: Rows, ts: Ints, dur: Ints, parent: Ids, on_thread: Mask
) -> tuple[Rows, list[str]]:
    """Return the rows of the ranges whose names are those of steps, and the labels of these steps.

    - A range inside another such range of its thread is not a step.
    - If ranges with different names overlap, only the ranges of the name with the most total time are steps.
    - The number in `batch_32` may be the batch size. Batches are steps only if their numbers are consecutive.

    Args:
        strings: The texts of names.
        name: (n,) string ids.
        category: (n,) categories.
        ts: (n,) starts in ns.
        dur: (n,) durations in ns.
        parent: (n,) rows of the enclosing events.
        on_thread: (n,) whether the event is on a thread.
    """
    is_range = np.isin(category, _RANGES) & on_thread & (dur > 0)
    labels = {number: label for number in _distinct(name[is_range]) if (label := step_label(str(strings[number])))}
    if not labels:
        return np.zeros(0, np.int64), []
    is_step = is_range & np.isin(name, list(labels))
    rows = np.flatnonzero(is_step)
    rows = rows[nearest_ancestor(parent, is_step, parent[rows]) < 0]
    names: list[int] = name[rows].tolist()
    stems = [str(strings[number]).rpartition(labels[number])[0].casefold() for number in names]
    distinct = {stem: i for i, stem in enumerate(dict.fromkeys(stems))}
    stem = np.array([distinct[text] for text in stems], np.int64)
    spent = np.bincount(stem, dur[rows], len(distinct))
    used = np.zeros(len(rows), bool)
    for number in np.argsort(-spent, kind="stable")[:MAX_STEP_NAMES].tolist():
        of_stem = np.flatnonzero(stem == number)
        if "batch" in stems[of_stem[0]] and not _are_consecutive([labels[i] for i in name[rows[of_stem]].tolist()]):
            continue
        free = ~_overlaps(ts[rows[of_stem]], dur[rows[of_stem]], ts[rows[used]], dur[rows[used]])
        used[of_stem[free]] = True
    several = len(_distinct(stem[used])) > 1
    rows = rows[used]
    names = name[rows].tolist()
    return rows, [str(strings[number]) if several else labels[number] for number in names]


def _distinct(numbers: Rows) -> list[int]:
    """Return the distinct numbers, ascending. Unlike `np.unique`, this imports no module and does not sort."""
    return np.flatnonzero(np.bincount(numbers)).tolist()


def _are_consecutive(numbers: Sequence[str]) -> bool:
    """Return whether the numbers count up by 1, at least once. A smaller number starts a new count."""
    pairs = list(pairwise(map(int, numbers)))
    return bool(pairs) and all(b == a + 1 or b < a for a, b in pairs) and any(b == a + 1 for a, b in pairs)


def _overlaps(ts: Ints, dur: Ints, other_ts: Ints, other_dur: Ints) -> Mask:
    """Return (n,) whether each range shares time with one of the others."""
    if not len(other_ts):
        return np.zeros(len(ts), bool)
    order = np.argsort(other_ts, kind="stable")
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate((other_ts + other_dur)[order]))
    return reach[np.searchsorted(other_ts[order], ts + dur, side="left")] > ts


def with_step_range(trace: Trace, step_range: str) -> Trace:
    """Return the trace with other steps: the ranges whose names match a pattern.

    A range inside another matching range is not a step. The label of a step is the last number in its name. If a name
    has no number, or two steps have the same number, the steps are labeled 0, 1, 2, ...

    Args:
        trace: The trace.
        step_range: Pattern of the names, see `matching_names`; "" for the trace's own steps.

    Raises:
        BadParameter: No range has such a name.
    """
    if not step_range:
        return trace
    events = trace.events
    is_range = trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    used = _distinct(events.name[is_range])
    matches = matching_names(step_range, [str(trace.strings[number]) for number in used])
    is_step = is_range & np.isin(events.name, np.array(used, np.int64)[np.array(matches, np.int64)])
    rows = np.flatnonzero(is_step)
    rows = rows[nearest_ancestor(events.parent, is_step, events.parent[rows]) < 0]
    if not len(rows):
        raise _no_such_range(trace, step_range)
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    name_ids: list[int] = events.name[rows].tolist()
    labels = _labels([trace.strings[number] for number in name_ids])
    ids = {text: number for number, text in reversed(list(enumerate(trace.strings)))}
    for label in labels:
        ids.setdefault(label, len(ids))
    strings = (*trace.strings, *sorted(ids, key=ids.__getitem__)[len(trace.strings) :])
    steps = Steps(
        np.array([ids[label] for label in labels], np.int32), events.ts[rows], events.dur[rows], events.track[rows]
    )
    category = np.where(events.category == Category.STEP, np.uint8(Category.ANNOTATION), events.category)
    category[rows] = Category.STEP
    changed = replace(events, category=category)
    changed = replace(changed, step=attribute_steps(changed, list(trace.tracks), steps, trace.links))
    return trace.with_columns(events=changed, steps=steps, strings=strings)


def _labels(names: Sequence[str]) -> list[str]:
    numbers = [match[1] if (match := _NUMBER.search(name)) else "" for name in names]
    is_distinct = all(numbers) and len(set(numbers)) == len(numbers)
    return numbers if is_distinct else [str(i) for i in range(len(names))]


def _no_such_range(trace: Trace, step_range: str) -> BadParameter:
    events = trace.events
    is_range = events.category_mask(Category.ANNOTATION, Category.STEP) & trace.track_mask(TrackKind.THREAD)
    names = [trace.strings[number] for number in _distinct(events.name[is_range & (events.dur > 0)])]
    listed = ", ".join(sorted(names)[:MAX_LISTED_NAMES])
    return BadParameter(
        msg("reader.no_range_has_name", f"no range has a name like {step_range[:MAX_PATTERN_CHARS]!r}"),
        msg("reader.ranges_file", f"ranges of the file: {listed or '-'}"),
    )


def matching_names(step_range: str, names: Sequence[str]) -> list[int]:
    """Return the positions of the names that match a pattern.

    The pattern is a whole name, in which `*` is any text and `?` is any character. A pattern without these characters
    also matches names that continue with a number. If nothing matches, the pattern is tried as a regular expression.
    It may have at most two repetitions and no repeated groups, so that matching is fast for every text.
    """
    if len(step_range) > MAX_PATTERN_CHARS:
        return []
    for matches in _matchers(step_range):
        positions = [i for i, name in enumerate(names) if matches(name[:MAX_NAME_CHARS])]
        if positions:
            return positions
    return []


def _matchers(step_range: str) -> Sequence[Callable[[str], re.Match[str] | None]]:
    matchers: list[Callable[[str], re.Match[str] | None]] = [re.compile(translate(step_range)).match]
    if not re.search(r"[*?\[]", step_range):
        matchers.append(re.compile(re.escape(step_range) + r"[\W_]*\d+", re.DOTALL).fullmatch)
    repeats = re.findall(r"(?<!\\)[*+{]", step_range)
    if len(repeats) <= 2 and not re.search(r"\)[*+?{]|\(\?|\[.*\[|--|&&|~~|\|\|", step_range):
        try:
            matchers.append(re.compile(step_range).search)
        except (re.error, OverflowError):
            return matchers
    return matchers
