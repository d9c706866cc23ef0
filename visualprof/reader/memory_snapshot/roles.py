"""Roles of memory: parameters, gradients, optimizer state, activations, and others.

The call stack shows the origin of a block, and its lifetime its role: memory of an optimizer is its state only if it
outlives the step. Other blocks have an unknown role.

Source: docs/views/snapshot.md, "Categories".
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from visualprof.reader.memory_snapshot.history import Stacks
from visualprof.reader.trace.heap import Action, BlockRows, Entries
from visualprof.reader.trace.types import Ids, Ints, Mask

ROLES = (
    "unknown",
    "before_history",
    "parameter",
    "gradient",
    "optimizer_state",
    "activation",
    "temporary",
    "input",
    "communication",
    "graph",
)


class Origin(NamedTuple):
    """An origin of memory: the innermost frame that matches decides.

    Attributes:
        name: The origin.
        pattern: Matches `path:function`.
    """

    name: str
    pattern: re.Pattern[str]


ORIGINS = (
    Origin("input", re.compile(r"pin_memory|/utils/data/|DataLoader")),
    Origin("communication", re.compile(r"/torch/distributed/|(^|\W)c10d::|[Nn]ccl")),
    Origin("optimizer", re.compile(r"/optim/[^:]*:(?!zero_grad)")),
    Origin("backward", re.compile(r"autograd::(Engine|generated)|Backward\d*::apply|/torch/autograd/")),
    Origin("module", re.compile(r"/nn/modules/[^:]*:(__init__|reset_parameters|convert|_apply)$|:from_pretrained$")),
    Origin("forward", re.compile(r":(_call_impl|_wrapped_call_impl)$")),
)
_NONE = len(ORIGINS)


def block_roles(blocks: BlockRows, entries: Entries, stacks: Stacks, pools: list[tuple[int, int]], first: int) -> Ids:
    """Return the row of `ROLES` of each block of one device.

    - input, communication: by the stack
    - graph: blocks of a private pool
    - parameter: created or moved by a module, and alive at the end
    - optimizer_state: allocated by an optimizer, and alive when the next backward pass begins, or at the end
    - gradient: allocated in a backward pass, of parameters and of activations
    - activation: allocated in a forward pass, and alive when the next backward pass begins
    - temporary: from a module, an optimizer or a forward pass, and released earlier

    Args:
        blocks: Blocks of the device.
        entries: Entries of the device.
        stacks: Call stacks of the file.
        pools: Ids of the pools of the file.
        first: Number of the device's first entry.
    """
    origin_of_stack = stack_origins(stacks)
    origin = np.where(blocks.stack > 0, origin_of_stack[blocks.stack], _NONE)
    entry_origin = np.where(entries.action == Action.ALLOC, origin_of_stack[entries.stack], _NONE)
    end = first + len(entries)
    is_left = blocks.died >= end
    before_backward = _outlives(blocks, np.flatnonzero(entry_origin == _row("backward")) + first)
    lasting = (
        ("parameter", "module", is_left),
        ("optimizer_state", "optimizer", before_backward | is_left),
        ("activation", "forward", before_backward),
    )
    role = np.full(len(blocks.addr), ROLES.index("unknown"), np.int32)
    for name, source, is_lasting in lasting:
        from_there = origin == _row(source)
        role[from_there] = np.where(is_lasting[from_there], ROLES.index(name), ROLES.index("temporary"))
    for name, source in (("gradient", "backward"), ("input", "input"), ("communication", "communication")):
        role[origin == _row(source)] = ROLES.index(name)
    private = np.array([pool != (0, 0) for pool in pools] + [False])
    role[private[blocks.pool]] = ROLES.index("graph")
    role[(blocks.born < first) & (blocks.stack == 0)] = ROLES.index("before_history")
    return role


def stack_origins(stacks: Stacks) -> Ids:
    """Return the row of `ORIGINS` of each stack, `len(ORIGINS)` for none."""
    frames = np.array([_frame_origin(f"{file}:{name}") for file, name in zip(stacks.files, stacks.names, strict=True)])
    origins: list[int] = []
    rows, offsets = stacks.frames.tolist(), stacks.offsets.tolist()
    for first, end in pairwise(offsets):
        stack = (int(frames[row]) for row in rows[first:end])
        origins.append(next((origin for origin in stack if origin != _NONE), _NONE))
    return np.array(origins, np.int32)


def _frame_origin(text: str) -> int:
    return next((row for row, origin in enumerate(ORIGINS) if origin.pattern.search(text)), _NONE)


def _row(name: str) -> int:
    return next(row for row, origin in enumerate(ORIGINS) if origin.name == name)


def _outlives(blocks: BlockRows, entries: Ints) -> Mask:
    """Return which blocks are alive at the first of the entries after their birth; False without such an entry."""
    following = np.searchsorted(entries, blocks.born, side="right")
    is_known = following < len(entries)
    at = np.append(entries, 0)[np.minimum(following, len(entries))]
    return is_known & (blocks.died > at)
