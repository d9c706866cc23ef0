"""What is tried beside a model: conversions of it, other runtimes and options, and the best of these together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.converters import Converter
from visualprof.remote.protocol import Runtime, Spec, version_key

Kind = Literal["original", "conversion", "runtime", "combination"]

MAX_CANDIDATES = 64
COMBINED = 3  # that are combined
MAX_TRIED_VALUES = 4  # values of an option that are all tried
CONVERTS = ("f16", "int8")  # precisions for which ONNX Runtime's backend converts the model, as a converter does
_PLAIN = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class ConversionStep:
    """A conversion. options: those that differ from the default."""

    converter: str
    options: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Candidate:
    """A model made by some steps, and how it is run. name: that of a folder."""

    name: str
    kind: Kind
    steps: tuple[ConversionStep, ...]
    spec: Spec


def newest_runtime(spec: Spec, runtimes: Iterable[Runtime]) -> Runtime | None:
    """The newest runtime of the machine that fits a spec."""
    fitting = [
        one
        for one in runtimes
        if one.backend == spec.backend and spec.version in ("", one.version) and spec.device in one.devices
    ]
    return max(fitting, key=lambda one: version_key(one.version), default=None)


def runtime_candidates(spec: Spec, model_format: str, runtimes: Sequence[Runtime]) -> Iterator[Candidate]:
    """The same file, run in another way: each option of its runtime, and every other one with each precision."""
    for backend in all_backends():
        own = backend.name == spec.backend
        other = replace(spec, backend=backend.name, version=spec.version if own else "", precision="", options={})
        if model_format not in backend.formats or newest_runtime(other, runtimes) is None:
            continue
        changed = replace(spec, options=dict(spec.options)) if own else other
        if not own:
            yield _run(changed)
        for precision in backend.precisions:
            same = precision in (spec.precision or "f32", "f32")
            if not same and not (backend.name == "onnxruntime" and precision in CONVERTS):
                yield _run(replace(changed, precision=precision), precision)
        if own:
            yield from _options(spec, backend)


def _options(spec: Spec, backend: Backend) -> Iterator[Candidate]:
    """Each other value of each option that has a few."""
    for name, values in backend.options.items():
        for value in values if len(values) <= MAX_TRIED_VALUES else ():
            if value != spec.options.get(name, values[0]):
                yield _run(replace(spec, options={**spec.options, name: value}), name, value)


def _run(spec: Spec, *words: str) -> Candidate:
    return Candidate(folder_name("-".join((spec.backend, *words))), "runtime", (), spec)


def conversion_candidates(
    spec: Spec, usable: Sequence[Converter], runtimes: Sequence[Runtime], calibrates: bool
) -> Iterator[Candidate]:
    """Each converter with its defaults, and with each other value of each option that has a few.

    Args: usable: those that take the model. calibrates: there are rows of the user's data for it.
    """
    for kind in usable:
        if kind.calibrates and not calibrates:
            continue
        if (how := spec_for(spec, kind, runtimes)) is None:
            continue
        yield Candidate(folder_name(kind.name), "conversion", (ConversionStep(kind.name),), how)
        for name, values in kind.options.items():
            for value in values[1:] if len(values) <= MAX_TRIED_VALUES else ():
                step = ConversionStep(kind.name, {name: value})
                yield Candidate(folder_name(f"{kind.name}-{name}-{value}"), "conversion", (step,), how)


def spec_for(spec: Spec, kind: Converter, runtimes: Sequence[Runtime]) -> Spec | None:
    """How what a converter makes is run: by the spec's own runtime where that can, else by the first that does."""
    able = [b.name for b in all_backends() if kind.makes in b.formats and b.name in (kind.runtimes or (b.name,))]
    for name in sorted(able, key=lambda name: name != spec.backend):
        own = name == spec.backend
        how = replace(
            spec,
            backend=name,
            version=spec.version if own else "",
            precision=spec.precision if own else "",
            options={**(spec.options if own else {}), **kind.settings},
        )
        if newest_runtime(how, runtimes) is not None:
            return how
    return None


def combinations(best: Sequence[Candidate], converters: Mapping[str, Converter]) -> Iterator[Candidate]:
    """The best conversions in the best ways to run a model, and pairs of the best conversions.

    Args:
        best: those that passed, the best first.
        converters: by their names.
    """
    made = [one for one in best if one.steps][:COMBINED]
    for conversion in made:
        for way in [one for one in best if not one.steps][:COMBINED]:
            if _runs(way.spec.backend, converters[conversion.steps[-1].converter]):
                own = way.spec.backend == conversion.spec.backend
                options = {**(conversion.spec.options if own else {}), **way.spec.options}
                how = replace(way.spec, options=options)
                yield Candidate(f"{conversion.name}+{way.name}", "combination", conversion.steps, how)
    for first, second in itertools.permutations(made, 2):
        one, other = converters[first.steps[-1].converter], converters[second.steps[0].converter]
        # Of the two orders the first that is possible: whatever optimises for a machine has the last word.
        if one.makes == other.takes and one is not other and _order(first) <= _order(second):
            name = f"{first.name}+{second.name}"
            yield Candidate(name, "combination", (*first.steps, *second.steps), second.spec)


def _runs(backend: str, kind: Converter) -> bool:
    able = next(one for one in all_backends() if one.name == backend)
    return kind.makes in able.formats and backend in (kind.runtimes or (backend,))


def _order(conversion: Candidate) -> tuple[bool, str]:
    """Conversions that bind a model to one runtime come after those that do not."""
    return bool(conversion.spec.options), conversion.name


def select_candidates(candidates: Iterable[Candidate], only: Sequence[str]) -> list[Candidate]:
    """Those whose name is among some, or begins with one; all without any. Names are distinct; at most 64."""
    chosen = {c.name: c for c in candidates if not only or any(_begins(c.name, name) for name in only)}
    return list(chosen.values())[:MAX_CANDIDATES]


def _begins(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}-")


def folder_name(name: str) -> str:
    """A name as that of a folder."""
    return _PLAIN.sub("-", name).strip("-.")[:80]
