"""Matching of the modules of two runs. docs/diff.md#matching."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from visualprof.views.diff.match import Matched, Row, distinct_rows
from visualprof.views.diff.side import Side

_NUMBER = re.compile(r"_\d+$")


@dataclass
class _Module:
    path: str = ""
    kind: str = ""
    inner: dict[str, _Module] = field(default_factory=dict[str, "_Module"])


_Pair = tuple[_Module | None, _Module | None]


def match_modules(base: Side, new: Side) -> Matched:
    """Match the pieces of two runs by the position of their module in the tree.

    Profilers number the modules of a class in the order of their first calls, so an additional module renames all that
    follow. So children of a module are matched in order, by class. A module in the place of another class either
    replaces it, or wraps it.
    """
    sides = base, new
    names = [list(map(str, side.pieces.columns.name)) for side in sides]
    before, after = (_tree(paths) for paths in names)
    rows: list[dict[str, Row]] = [{}, {}]
    for base_module, new_module in _pairs(before, after):
        row = _row(base_module, new_module)
        for row_of_path, module in zip(rows, (base_module, new_module), strict=True):
            if module:
                row_of_path[module.path] = row
    return distinct_rows(
        sides, [[row_of_path[path] for path in paths] for row_of_path, paths in zip(rows, names, strict=True)]
    )


def _tree(paths: list[str]) -> _Module:
    """Return the tree of modules of some paths. Missing ancestors are added."""
    root = _Module()
    for path in paths:
        at = root
        for name in path.split("/"):
            inside = f"{at.path}/{name}".removeprefix("/")
            at = at.inner.setdefault(name, _Module(inside, _NUMBER.sub("", name).casefold()))
    return root


def _row(base: _Module | None, new: _Module | None) -> Row:
    if base is None or new is None:
        return Row("", (base or new or _Module()).path)
    if base.path == new.path:
        return Row("", new.path)
    return Row("", new.path, base.path, new.path, base.kind != new.kind)


def _pairs(base: _Module, new: _Module) -> Iterator[_Pair]:
    """Yield the pairs of children of two matched modules."""
    a, b = list(base.inner.values()), list(new.inner.values())
    kinds = [[module.kind for module in side] for side in (a, b)]
    for tag, i, i_end, j, j_end in SequenceMatcher(None, *kinds, autojunk=False).get_opcodes():
        alike = tag == "equal" or (tag == "replace" and i_end - i == j_end - j)
        if alike:
            for base_module, new_module in zip(a[i:i_end], b[j:j_end], strict=True):
                yield from _pair(base_module, new_module)
        else:
            for base_module in a[i:i_end]:
                yield from ((module, None) for module in _all(base_module))
            for new_module in b[j:j_end]:
                yield from ((None, module) for module in _all(new_module))


def _pair(base: _Module, new: _Module) -> Iterator[_Pair]:
    """Yield the pairs of two modules in one place: one wraps the other, replaces it, or is the same."""
    if base.kind != new.kind and any(module.kind == base.kind for module in new.inner.values()):
        yield None, new
        yield from _pairs(_Module(inner={base.path: base}), new)
    elif base.kind != new.kind and any(module.kind == new.kind for module in base.inner.values()):
        yield base, None
        yield from _pairs(base, _Module(inner={new.path: new}))
    else:
        yield base, new
        yield from _pairs(base, new)


def _all(module: _Module) -> Iterator[_Module]:
    yield module
    for inner in module.inner.values():
        yield from _all(inner)
