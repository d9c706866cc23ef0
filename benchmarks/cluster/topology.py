"""The positions of the ranks of a job, and the groups in which they communicate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ints

DESCRIPTIONS = {
    "world": "default_pg",
    "tensor": "TENSOR_MODEL_PARALLEL_GROUP",
    "data": "DATA_PARALLEL_GROUP",
    "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP",
    "expert": "EXPERT_MODEL_PARALLEL_GROUP",
}


class Group(NamedTuple):
    """A process group; ranks in the group's order."""

    kind: str
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Topology:
    """A job's ranks, the tensor axis fastest, then data, then pipeline, as Megatron numbers them.

    An expert group is `expert` neighbors of the data axis.
    """

    ranks: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    per_host: int = 8
    hosts_per_rack: int = 4

    def __post_init__(self) -> None:
        if self.ranks % (self.tensor * self.pipeline) or self.data % self.expert:
            raise ValueError(f"{self.ranks} ranks cannot be split by {self.tensor} x {self.pipeline} x {self.expert}")

    @property
    def data(self) -> int:
        """Copies of the model."""
        return self.ranks // (self.tensor * self.pipeline)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Stages, copies, and ranks that share a layer."""
        return self.pipeline, self.data, self.tensor

    @property
    def hosts(self) -> int:
        """Machines."""
        return -(-self.ranks // self.per_host)

    def host(self, rank: int) -> int:
        """The machine of a rank."""
        return rank // self.per_host

    def members(self, kind: str) -> Ints:
        """Ranks (groups, members) of all groups of a kind."""
        grid = np.arange(self.ranks).reshape(self.shape)
        if kind == "tensor":
            return grid.reshape(-1, self.tensor)
        if kind == "data":
            return grid.transpose(0, 2, 1).reshape(-1, self.data)
        if kind == "pipeline":
            return grid.transpose(1, 2, 0).reshape(-1, self.pipeline)
        if kind == "expert":
            split = grid.reshape(self.pipeline, -1, self.expert, self.tensor)
            return split.transpose(0, 1, 3, 2).reshape(-1, self.expert)
        return grid.reshape(1, -1)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All groups with more than one rank, numbered in the order in which a job makes them."""
        members = [
            (kind, tuple(ranks))
            for kind in DESCRIPTIONS
            for ranks in self.members(kind).tolist()
            if len(ranks) > 1 or kind == "world"
        ]
        return tuple(Group(kind, str(number), ranks) for number, (kind, ranks) in enumerate(members))

    @cached_property
    def of_rank(self) -> dict[int, dict[str, Group]]:
        """The groups of each rank by kind."""
        groups: dict[int, dict[str, Group]] = {rank: {} for rank in range(self.ranks)}
        for group in self.groups:
            for rank in group.ranks:
                groups[rank][group.kind] = group
        return groups
