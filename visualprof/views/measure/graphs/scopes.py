"""Assign operators to the nodes of a model by the scopes in which they were called.

MegEngine's dynamic profiler records types of operators and the scopes of modules, but no names of nodes.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.graph import ModelGraph, Node
from visualprof.reader.trace import Category, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.graphs.names import AMBIGUOUS, NO_NODE
from visualprof.views.measure.launches.launch import device_calls
from visualprof.views.measure.operators.call_paths import CallPaths, path_labels, scope_paths
from visualprof.views.measure.operators.path_owners import path_owners

Longs = NDArray[np.int64]
ModulePath = tuple[str, ...]
_VERSION_SUFFIX = re.compile(r"(Forward)?(V\d+)?$")  # a type `PoolingV1` of a model is `Pooling` in a profile
_NUMBER_SUFFIX = re.compile(r"(#\d+|\[\d+\])$")  # makes repeated names of a model unique
_BACKWARD_SCOPE = re.compile(r"[Bb]ackward")


def find_scope_nodes(model: ModelGraph, trace: Trace, rows: Longs) -> tuple[Longs, Mask]:
    """Return the node of each operator, and whether the operator was called in a scope of the forward pass.

    The node is NO_NODE if the model has no such node, and AMBIGUOUS if several nodes are possible:

    - A module can be a single node of the model. All operators in the scope of such a module belong to that node.
    - Any other operator belongs to the node with its type in the same module.
    - If the module has several nodes of that type, they are assigned in order of execution. Each step must have exactly
      one operator per node, otherwise the operators are AMBIGUOUS.

    Args:
        model: The model; the names of its nodes are paths of modules.
        trace: A recording with scopes.
        rows: (n,) operators on a device, in order of time.
    """
    paths = scope_paths(trace)
    issuer = np.full(len(trace.events), -1, np.int32)
    work, _, work_issuer = device_calls(trace)
    issuer[work] = work_issuer
    path = path_owners(trace, paths, issuer[rows]).path.astype(np.int64)
    without_nodes = trace.events.category_mask(Category.BACKWARD, Category.OPTIMIZER)
    names = _Nodes(model)
    nodes_of_path, module_of_path = names.match_paths(paths, trace)
    node = nodes_of_path[path]
    module = np.where(nearest_ancestor(trace.events.parent, without_nodes, issuer[rows]) >= 0, -1, module_of_path[path])
    rest = np.flatnonzero((node == NO_NODE) & (module >= 0))
    type_id = trace.events.name[rows[rest]].astype(np.int64)
    by_type = group(module[rest], type_id)
    step = trace.events.step[rows[rest]].astype(np.int64)
    for number, first in enumerate(by_type.first.tolist()):
        candidates = names.of_type(int(module[rest[first]]), trace.strings[int(type_id[first])])
        if candidates:
            members = np.flatnonzero(by_type.ids == number)
            node[rest[members]] = assign_in_order(candidates, step[members])
    return node, (module >= 0) & (path >= 0)


def assign_in_order(candidates: list[int], run: Longs) -> Longs:
    """Assign operators of one type and place to nodes: the first operator of a step or pass to the first node, etc.

    All operators are AMBIGUOUS if a step or pass has more or fewer operators than there are nodes.

    Args:
        candidates: Nodes, in order of execution.
        run: (n,) step or pass of each operator, in order of time.
    """
    starts = np.flatnonzero(np.diff(run, prepend=-2))
    counts = np.diff(starts, append=len(run))
    if (counts != len(candidates)).any():
        return np.full(len(run), AMBIGUOUS)
    return np.array(candidates, np.int64)[np.arange(len(run)) - np.repeat(starts, counts)]


class _Nodes:
    """Index of a model's operators by module path and type."""

    def __init__(self, model: ModelGraph) -> None:
        self._by_path: dict[ModulePath, int] = {}
        self._by_type: defaultdict[tuple[ModulePath, str], list[int]] = defaultdict(list)
        modules: dict[ModulePath, int] = {(): 0}
        for row, node in enumerate(model.nodes):
            if node.kind != "operator":
                continue
            module = tuple(scope.name for scope in node.scope)
            for depth in range(1, len(module) + 1):
                modules.setdefault(module[:depth], len(modules))
            self._by_path[(*module, _own_name(node))] = row
            for name in {_VERSION_SUFFIX.sub("", node.type), _NUMBER_SUFFIX.sub("", _own_name(node))}:
                self._by_type[module, name].append(row)
        self._modules = modules
        self._module_paths = list(modules)

    def match_paths(self, paths: CallPaths, trace: Trace) -> tuple[Longs, Longs]:
        """Return the node and the module of the model that enclose each call path.

        Returns:
            nodes: (p + 1,) row of the node, or NO_NODE. The last entry is for calls outside of all paths.
            modules: (p + 1,) number of the module, -1 in a backward pass. The last entry is as in `nodes`.
        """
        texts: list[ModulePath] = []
        found_nodes: list[int] = []
        found_modules: list[int] = []
        parents: list[int] = paths.parent.tolist()
        for parent, label in zip(parents, path_labels(paths, trace.strings), strict=True):
            outer_text: ModulePath = texts[parent] if parent >= 0 else ()
            text: ModulePath = (*outer_text, label)
            if text not in self._by_path and text not in self._modules:
                text = outer_text  # a function, or a scope of the program around the model
            texts.append(text)
            outer_node = found_nodes[parent] if parent >= 0 else NO_NODE
            outer_module = found_modules[parent] if parent >= 0 else 0
            is_backward = outer_module < 0 or bool(_BACKWARD_SCOPE.search(label))
            found_nodes.append(NO_NODE if is_backward else self._by_path.get(text, outer_node))
            found_modules.append(-1 if is_backward else self._modules.get(text, outer_module))
        return np.array([*found_nodes, NO_NODE], np.int64), np.array([*found_modules, 0], np.int64)

    def of_type(self, module: int, name: str) -> list[int]:
        """Return the nodes of a type directly in a module, in order of execution."""
        return self._by_type.get((self._module_paths[module], _VERSION_SUFFIX.sub("", name)), [])


def _own_name(node: Node) -> str:
    """Return the last part of the node's name, which is a path with dots."""
    return node.name.rpartition(".")[2]
