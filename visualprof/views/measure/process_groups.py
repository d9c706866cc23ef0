"""Who of a run is where: its process groups and what they are for, the place of each rank in them, hosts and racks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.logdir.layout import worker_host
from visualprof.reader.trace import Ints
from visualprof.reader.trace.process_group import ProcessGroup, Runs, decode_ranks, encode_ranks
from visualprof.views.measure.call_matching import MatchedCalls
from visualprof.views.measure.groups import group
from visualprof.views.measure.rank_summary import RankSummary

GroupRole = Literal["data", "tensor", "pipeline", "expert", "world", "unknown"]
RoleSource = Literal["description", "structure", "nothing"]
AXES: tuple[GroupRole, ...] = ("data", "tensor", "pipeline", "expert")

# Words of torch's device meshes, Megatron, DeepSpeed, FSDP and vLLM; a group of two axes is of neither.
_WORDS: dict[str, GroupRole] = {
    **dict.fromkeys(("data", "dp", "ddp", "fsdp", "hsdp", "shard", "replicate", "zero"), "data"),
    **dict.fromkeys(("tensor", "tp"), "tensor"),
    **dict.fromkeys(("pipeline", "pipe", "pp"), "pipeline"),
    **dict.fromkeys(("expert", "ep", "moe"), "expert"),
    **dict.fromkeys(("default", "world"), "world"),
}  # fmt: skip
_OTHER_WORDS = frozenset(("embedding", "embd", "context", "cp", "sequence", "sp"))
_RACK = re.compile(r"(?<![A-Za-z0-9])(?:rack|cabinet)[-_]?[A-Za-z]?\d+", re.IGNORECASE)


class RunGroup(msgspec.Struct, frozen=True):
    """A process group of a run.

    name, description: as the profiles have them, "" unknown. members: its global ranks in the order of their ranks in
    the group, runs: as runs. present: which of these have a profile. role: what it is for, told: by what that is known.
    """

    name: str
    description: str
    members: tuple[int, ...]
    profiled_members: tuple[int, ...]
    runs: Runs
    role: GroupRole
    role_source: RoleSource


class ProcessGroups(msgspec.Struct, frozen=True):
    """Where each of n ranks stands, in the order of their numbers.

    numbers: (n,) ascending. groups: every group that a rank lists or has met in, larger ones first.
    hosts, racks: (n,) names, "" unknown.
    group_of: of each axis that the run has, the place (n,) in `groups` of the largest group of that role that each rank
    is in, -1 for none. place: the rank (n,) in that group: the stage of a pipeline, the shard of a tensor; -1.
    """

    ranks: tuple[int, ...]
    groups: tuple[RunGroup, ...]
    hosts: tuple[str, ...]
    racks: tuple[str, ...]
    axis_group: Mapping[GroupRole, Ints]
    axis_position: Mapping[GroupRole, Ints]

    def group_indices(self, groups: Iterable[ProcessGroup]) -> Ints:
        """The places of some groups among these, -1 of those whose members are not known."""
        places = {(one.name, one.runs): i for i, one in enumerate(self.groups)}
        return np.array([places.get((one.name, one.runs), -1) for one in groups], np.int64)


class _Met(msgspec.Struct):
    """What is known of a group. kinds: of its calls, `message`, `all_to_all` or `other`."""

    description: str = ""
    kinds: set[str] = msgspec.field(default_factory=set[str])


def find_process_groups(
    ranks: Sequence[tuple[str, RankSummary]], rank_numbers: Sequence[int], calls: MatchedCalls
) -> ProcessGroups:
    """The process groups of a run.

    The role is that of the description, where it names one axis. Else a group that sends messages is a pipeline's, one
    with all-to-alls is of experts, one of neighbouring ranks on one host is a tensor's, any other in which something is
    exchanged is of data. Where messages go between ranks of the whole world, its chains are the pipelines.
    The rack is read in the host's name (`rack3-node12`).

    Args:
        ranks: workers and their parts.
        numbers: their global ranks, ascending.
        calls: of all of them.
    """
    hosts = tuple(part.host or worker_host(worker) for worker, part in ranks)
    host_by_rank = dict(zip(rank_numbers, hosts, strict=True))
    met = _met([part for _, part in ranks], calls)
    size = max([len(rank_numbers), *(part.location.world_size for _, part in ranks)])
    found = list[RunGroup]()
    for (name, runs), own in met.items():
        members: tuple[int, ...] = tuple(decode_ranks(runs).tolist())
        role, told = _role(own, members, size, host_by_rank)
        present = tuple(n for n in members if n in host_by_rank)
        found.append(RunGroup(name, own.description, members, present, runs, role, told))
    if not any(one.role == "pipeline" for one in found):
        found += _chains(calls, host_by_rank)
    found.sort(key=lambda one: (-len(one.members), one.members, one.name))
    group_of, place = _places(found, rank_numbers)
    return ProcessGroups(
        tuple(rank_numbers), tuple(found), hosts, tuple(_rack(host) for host in hosts), group_of, place
    )


def _met(parts: Sequence[RankSummary], calls: MatchedCalls) -> dict[tuple[str, Runs], _Met]:
    """The groups that ranks list or meet in, by name and members."""
    met: dict[tuple[str, Runs], _Met] = {}
    for part in parts:
        for one in (*part.groups, *(one for one in part.collectives.groups if one.runs)):
            own = met.setdefault((one.name, one.runs), _Met())
            own.description = own.description or one.description
    kind = np.array([_kind(name) for name in calls.names], np.int64)[calls.name]
    found = group(calls.group, kind)
    pairs: list[tuple[int, int]] = np.stack((calls.group, kind), axis=1)[found.first].tolist()
    for i, which in pairs:
        one = calls.groups[i]
        if one.runs:
            met[one.name, one.runs].kinds.add(_KINDS[which])
    return met


_KINDS = ("other", "all_to_all", "message")


def _kind(name: str) -> int:
    word = name.replace("_", "").lower()
    return 2 if re.search(r"send|recv", word) else 1 if "alltoall" in word else 0


def _role(own: _Met, members: tuple[int, ...], size: int, hosts: Mapping[int, str]) -> tuple[GroupRole, RoleSource]:
    words = re.findall(r"[a-z]+", own.description.lower())
    axes: set[GroupRole] = {_WORDS[word] for word in words if word in _WORDS}
    if _OTHER_WORDS.isdisjoint(words) or axes == {"data"}:
        if axes == {"expert", "data"}:  # data parallel replicas of experts
            return "data", "description"
        if len(axes) == 1:
            return axes.pop(), "description"
    if len(members) >= size:
        return "world", "structure"
    if words or not own.kinds:
        return "unknown", "nothing"
    if "message" in own.kinds:
        return "pipeline", "structure"
    if "all_to_all" in own.kinds:
        return "expert", "structure"
    if len(members) < 2:
        return "unknown", "nothing"
    on = {hosts.get(rank, "") for rank in members}
    if members == tuple(range(members[0], members[0] + len(members))):
        return ("unknown", "nothing") if "" in on else ("tensor" if len(on) == 1 else "data", "structure")
    return "data", "structure"


def _chains(calls: MatchedCalls, present: Mapping[int, str]) -> list[RunGroup]:
    """The pipelines of a run that has no groups for them: ranks that messages connect."""
    messages = calls.source >= 0
    ends = np.stack((calls.source[messages], calls.destination[messages]), axis=1)
    edges: list[tuple[int, int]] = ends[group(ends[:, 0], ends[:, 1]).first].tolist()
    root: dict[int, int] = {}

    def top(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            root[rank] = rank = root[root[rank]]
        return rank

    for a, b in edges:
        low, high = sorted((top(a), top(b)))
        root[high] = low
    chains: dict[int, list[int]] = {}
    for rank in sorted(root):
        chains.setdefault(top(rank), []).append(rank)
    return [
        RunGroup(
            "", "", tuple(chain), tuple(n for n in chain if n in present), encode_ranks(chain), "pipeline", "structure"
        )
        for chain in chains.values()
    ]


def _places(groups: Iterable[RunGroup], numbers: Sequence[int]) -> tuple[dict[GroupRole, Ints], dict[GroupRole, Ints]]:
    """Of each axis the group of every rank and the place in that; of several groups the first one counts."""
    row = {number: i for i, number in enumerate(numbers)}
    group_of: dict[GroupRole, Ints] = {}
    place: dict[GroupRole, Ints] = {}
    for g, one in enumerate(groups):
        if one.role not in AXES or len(one.members) < 2:
            continue
        for axes in (group_of, place):
            axes.setdefault(one.role, np.full(len(numbers), -1, np.int64))
        known = [(row[rank], i) for i, rank in enumerate(one.members) if rank in row]
        rows = np.array([(at, i) for at, i in known if group_of[one.role][at] < 0], np.int64).reshape(-1, 2)
        group_of[one.role][rows[:, 0]] = g
        place[one.role][rows[:, 0]] = rows[:, 1]
    return group_of, place


def _rack(host: str) -> str:
    """The rack that a host's name tells, "" for none."""
    named = _RACK.search(host)
    return named.group() if named else ""
