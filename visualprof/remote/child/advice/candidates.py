"""The candidates next to a model: conversions, other runtimes and options, and combinations of the best of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.converters import Converter, all_converters
from visualprof.remote.protocol import Runtime, Spec, version_key

Kind = Literal["original", "conversion", "runtime", "combination"]

MAX_CANDIDATES = 64
COMBINED = 3  # best conversions and best runtimes that are combined
MAX_TRIED_VALUES = 4  # an option with more values is not tried
CONVERTED_PRECISIONS = ("f16", "int8")  # ONNX Runtime's backend converts the model for these
_PLAIN = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class ConversionStep:
    """A conversion.

    Attributes:
        converter: Name of the converter.
        options: Options that differ from the default.
    """

    converter: str
    options: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Candidate:
    """A converted model and the configuration that runs it.

    Attributes:
        name: A valid folder name.
        kind: How the candidate differs from the original.
        steps: The conversions, in order.
        spec: The run configuration.
    """

    name: str
    kind: Kind
    steps: tuple[ConversionStep, ...]
    spec: Spec


def newest_runtime(spec: Spec, runtimes: Iterable[Runtime]) -> Runtime | None:
    """Return the newest runtime of the machine that fits a run configuration."""
    fitting = [
        runtime
        for runtime in runtimes
        if runtime.backend == spec.backend and spec.version in ("", runtime.version) and spec.device in runtime.devices
    ]
    return max(fitting, key=lambda runtime: version_key(runtime.version), default=None)


def runtime_candidates(spec: Spec, model_format: str, runtimes: Sequence[Runtime]) -> Iterator[Candidate]:
    """Yield ways to run the same file: each option of its runtime, and each other runtime with each precision."""
    for backend in all_backends():
        is_own = backend.name == spec.backend
        other = replace(spec, backend=backend.name, version=spec.version if is_own else "", precision="", options={})
        if model_format not in backend.formats or newest_runtime(other, runtimes) is None:
            continue
        changed = replace(spec, options=dict(spec.options)) if is_own else other
        if not is_own:
            yield _run(changed)
        for precision in backend.precisions:
            same = precision in (spec.precision or "f32", "f32")
            if not same and not (backend.name == "onnxruntime" and precision in CONVERTED_PRECISIONS):
                yield _run(replace(changed, precision=precision), precision)
        if is_own:
            yield from _options(spec, backend)


def _options(spec: Spec, backend: Backend) -> Iterator[Candidate]:
    """Yield each other value of each option with few values."""
    for name, values in backend.options.items():
        for value in values if len(values) <= MAX_TRIED_VALUES else ():
            if value != spec.options.get(name, values[0]):
                yield _run(replace(spec, options={**spec.options, name: value}), name, value)


def _run(spec: Spec, *words: str) -> Candidate:
    return Candidate(folder_name("-".join((spec.backend, *words))), "runtime", (), spec)


def conversion_candidates(
    spec: Spec, usable: Sequence[Converter], runtimes: Sequence[Runtime], calibrates: bool
) -> Iterator[Candidate]:
    """Yield each converter with its defaults, and with each other value of each option with few values.

    Args:
        spec: The run configuration of the request.
        usable: Converters that fit the model.
        runtimes: Runtimes of the machine.
        calibrates: Whether there are rows of the user's data for calibration.
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
    """Return how to run the result of a converter: with the original's runtime if possible, otherwise another."""
    able = [b.name for b in all_backends() if kind.makes in b.formats and b.name in (kind.runtimes or (b.name,))]
    for name in sorted(able, key=lambda name: name != spec.backend):
        is_own = name == spec.backend
        changed = replace(
            spec,
            backend=name,
            version=spec.version if is_own else "",
            precision=spec.precision if is_own else "",
            options={**(spec.options if is_own else {}), **kind.settings},
        )
        if newest_runtime(changed, runtimes) is not None:
            return changed
    return None


def combinations(best: Sequence[Candidate], converters: Mapping[str, Converter]) -> Iterator[Candidate]:
    """Yield the best conversions run in the best ways, and pairs of the best conversions.

    Args:
        best: Candidates that passed, the best first.
        converters: Converters by name.
    """
    conversions = [candidate for candidate in best if candidate.steps][:COMBINED]
    for conversion in conversions:
        for run in [candidate for candidate in best if not candidate.steps][:COMBINED]:
            if _runs(run.spec.backend, converters[conversion.steps[-1].converter]):
                same_backend = run.spec.backend == conversion.spec.backend
                options = {**(conversion.spec.options if same_backend else {}), **run.spec.options}
                spec = replace(run.spec, options=options)
                yield Candidate(f"{conversion.name}+{run.name}", "combination", conversion.steps, spec)
    for first, second in itertools.permutations(conversions, 2):
        candidate, second_converter = converters[first.steps[-1].converter], converters[second.steps[0].converter]
        # Machine-specific optimizations come last, so only the first possible order of two conversions is tried.
        if (
            candidate.makes == second_converter.takes
            and candidate is not second_converter
            and _order(first) <= _order(second)
        ):
            name = f"{first.name}+{second.name}"
            yield Candidate(name, "combination", (*first.steps, *second.steps), second.spec)


def _runs(backend: str, kind: Converter) -> bool:
    able = next(one for one in all_backends() if one.name == backend)
    return kind.makes in able.formats and backend in (kind.runtimes or (backend,))


def _order(conversion: Candidate) -> tuple[bool, str]:
    """Return a sort key: conversions that bind a model to one runtime come after the others."""
    return bool(conversion.spec.options), conversion.name


def unknown_names(only: Sequence[str], specs: Iterable[Spec], suffix: str) -> tuple[list[str], list[str]]:
    """Return the elements of `only` that select nothing on any machine, and the names that can be selected.

    A name joined by "+" is a combination; each of its parts is a candidate's name.

    Args:
        only: Names or prefixes of names.
        specs: Run configurations of the original.
        suffix: Suffix of the model's file, such as ".onnx".
    """
    names = sorted({name for spec in specs for name in _possible_names(spec, suffix.lower())})
    known = [*names, "original"]
    unknown = [name for name in only if unmatched(name.split("+"), known)]
    return unknown, [name for name in names if not any(name != other and _begins(name, other) for other in names)]


def _possible_names(spec: Spec, suffix: str) -> Iterator[str]:
    """Yield the names of the candidates of a machine with all runtimes and converters."""
    backends = all_backends()
    runtimes = [Runtime(backend.name, spec.version, "", "", [spec.device]) for backend in backends]
    formats = {file.name for backend in backends for file in backend.files if suffix in file.suffixes}
    own = [backend.files[0].name for backend in backends if backend.name == spec.backend]
    for name in sorted(formats) or own:
        converters = [kind for kind in all_converters() if kind.takes == name]
        yield from (candidate.name for candidate in runtime_candidates(spec, name, runtimes))
        yield from (candidate.name for candidate in conversion_candidates(spec, converters, runtimes, True))


def round_robin(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates in rounds: one per converter or runtime in each, so that a small budget reaches each."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in candidates:
        names = [step.converter for step in candidate.steps] or [candidate.spec.backend]
        groups.setdefault((candidate.kind, *names), []).append(candidate)
    rounds = itertools.zip_longest(*groups.values())
    return [candidate for row in rounds for candidate in row if candidate is not None]


def select_candidates(candidates: Iterable[Candidate], only: Sequence[str]) -> list[Candidate]:
    """Return at most 64 candidates whose name is in `only` or extends one of its names; all if it is empty."""
    selected = {c.name: c for c in candidates if not only or any(_begins(c.name, name) for name in only)}
    return list(selected.values())[:MAX_CANDIDATES]


def unmatched(only: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the elements of `only` that are neither one of the names nor a prefix of one."""
    return [wanted for wanted in only if not any(_begins(name, wanted) for name in names)]


def _begins(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}-")


def folder_name(name: str) -> str:
    """Return a name without characters that folder names should not have."""
    return _PLAIN.sub("-", name).strip("-.")[:80]
