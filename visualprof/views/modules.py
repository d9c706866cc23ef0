"""Modules: the tree of nn.Module, Layer, Module and named ranges, with forward and backward costs."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Floats, Ids, Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, Table, columns_of, take_rows
from visualprof.views.measure.columns.timing import share_columns
from visualprof.views.measure.devices.memory import is_reuse_release
from visualprof.views.measure.launches.launch import host_durations, is_operator
from visualprof.views.measure.operators.call_paths import CallPaths, is_scope, path_texts, scope_paths
from visualprof.views.measure.operators.path_owners import forward_operators, path_owners, path_times
from visualprof.views.measure.steps.windows import is_in_step


class ModuleColumns(Columns, kw_only=True):
    """Modules in the order of their calls, each before its children. Self times exclude child modules.

    Attributes:
        name: Path of the module.
        parent: Row of the parent, or -1.
        backward_device_self_ns: Backward work of the operators of the module, as the other backward columns; absent if
            the file does not link forward and backward.
        share_ratio: Share of the device self time, forward and backward, of all work in and outside of modules; of the
            host self time of modules if nothing ran on a device.
        cumulative_ratio: Share of this row and all rows with more such time.
        allocated_bytes: Allocated during its calls.
        event: Row of the first call.
    """

    name: kinds.NameColumn
    kind: kinds.WordColumn
    parent: kinds.IdentifierColumn
    calls: kinds.CountColumn
    operators: kinds.CountColumn
    device_self_ns: kinds.DurationColumn
    device_total_ns: kinds.DurationColumn
    backward_device_self_ns: kinds.DurationColumn | None = None
    backward_device_ns: kinds.DurationColumn | None = None
    host_self_ns: kinds.DurationColumn
    host_total_ns: kinds.DurationColumn
    backward_host_self_ns: kinds.DurationColumn | None = None
    backward_host_ns: kinds.DurationColumn | None = None
    share_ratio: kinds.RatioColumn
    cumulative_ratio: kinds.RatioColumn
    allocated_bytes: kinds.SizeColumn | None = None
    flops: kinds.OperationColumn | None = None
    event: kinds.IdentifierColumn


class Outside(msgspec.Struct):
    """Work outside of all modules.

    Attributes:
        operators: Outermost operators.
    """

    operators: kinds.Count
    host_ns: kinds.Duration
    device_ns: kinds.Duration


class ModulesAnswer(Table[ModuleColumns]):
    """Modules.

    Attributes:
        only_ranges: PyTorch recorded named ranges only, no modules.
        linked: Whether the file links forward and backward.
    """

    only_ranges: bool
    linked: bool
    outside: Outside


def needs(trace: Trace) -> bool:
    """Whether the host has a module or a named range."""
    return bool(is_scope(trace).any())


def compute(trace: Trace, params: Params) -> ModulesAnswer:
    """Return the tree of modules.

    Source: docs/views/modules.md
    """
    tree = scope_paths(trace)
    inside = is_in_step(trace, params.step)
    times = path_times(trace, tree, params.step)
    operators = np.flatnonzero(is_operator(trace) & inside).astype(np.int32)
    by = path_owners(trace, tree, operators)
    is_forward = (by.path >= 0) & ~by.is_backward
    counted = np.bincount(by.path[is_forward], minlength=len(tree))
    device, host, backward_device, backward_host, ran = tree.inclusive(
        times.device, times.host, times.backward_device, times.backward_host, counted
    )
    device_self, host_self = times.device + times.backward_device, times.host + times.backward_host
    has_device = bool(device_self.any())
    whole = int(device_self.sum()) + times.outside_ns if has_device else int(host_self.sum())
    linked = bool((forward_operators(trace) >= 0).any())
    columns = ModuleColumns(
        name=path_texts(tree, trace.strings),
        kind=[Category(c).name.lower() for c in trace.events.category[tree.first].tolist()],
        parent=tree.parent,
        calls=times.calls,
        operators=ran,
        device_self_ns=times.device,
        device_total_ns=device,
        backward_device_self_ns=times.backward_device if linked else None,
        backward_device_ns=backward_device if linked else None,
        host_self_ns=times.host,
        host_total_ns=host,
        backward_host_self_ns=times.backward_host if linked else None,
        backward_host_ns=backward_host if linked else None,
        **share_columns(device_self if has_device else host_self, whole),
        allocated_bytes=_allocated(trace, tree, inside),
        flops=_flops(trace, tree, operators, by.path, is_forward),
        event=tree.first,
    )
    outer = operators[by.path < 0]
    outer = outer[nearest_ancestor(trace.events.parent, is_operator(trace), trace.events.parent[outer]) < 0]
    modules = bool((trace.events.category == Category.MODULE).any())
    return ModulesAnswer(
        columns=_used(columns, (times.calls > 0) | (device + host + backward_device + backward_host > 0)),
        only_ranges=not modules and trace.meta.framework == "pytorch",
        linked=linked,
        outside=Outside(len(outer), int(host_durations(trace)[outer].sum()), times.outside_ns),
    )


def _used(columns: ModuleColumns, used: Mask) -> ModuleColumns:
    """Return the rows with any work."""
    place = np.append(np.where(used, np.cumsum(used) - 1, -1), -1)
    rows = np.flatnonzero(used)
    used_columns = {name: take_rows(column, rows) for name, column in columns_of(columns).items()}
    used_columns["parent"] = place[np.asarray(used_columns["parent"])]
    return ModuleColumns(**used_columns)


def _allocated(trace: Trace, tree: CallPaths, inside: Mask) -> Ints | None:
    """Return the bytes allocated in each path and its children, on devices if the file has device allocations."""
    allocs = trace.allocs
    wanted = (allocs.bytes > 0) & (allocs.event >= 0)
    wanted &= (allocs.device >= 0) == bool((allocs.device >= 0).any())
    wanted[1:] &= ~is_reuse_release(trace)[:-1]
    at = np.flatnonzero(wanted)
    if not len(at):
        return None
    at = at[inside[allocs.event[at]]]
    by = path_owners(trace, tree, allocs.event[at])
    is_forward = (by.path >= 0) & ~by.is_backward
    return tree.inclusive(np.bincount(by.path[is_forward], allocs.bytes[at[is_forward]], len(tree)).astype(np.int64))[0]


def _flops(trace: Trace, tree: CallPaths, operators: Ids, path: Ids, is_forward: Mask) -> Floats | None:
    """Return the recorded operations of each path and its children; NaN if none. Only outermost operators count."""
    if "flops" not in trace.args:
        return None
    has_flops = np.zeros(len(trace.events), bool)
    counted = trace.arg("flops", operators, np.nan).astype(np.float64)
    has_flops[operators[~np.isnan(counted)]] = True
    outer = nearest_ancestor(trace.events.parent, has_flops, trace.events.parent[operators]) < 0
    is_forward = is_forward & outer & ~np.isnan(counted)
    self_flops = np.bincount(path[is_forward], counted[is_forward], len(tree)).astype(np.int64)
    total, some = tree.inclusive(self_flops, np.bincount(path[is_forward], minlength=len(tree)))
    return np.where(some > 0, total, np.nan)


VIEW = View("modules", 34, needs, Params, compute)
