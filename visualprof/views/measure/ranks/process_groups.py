"""Process groups of a run: their roles, the position of each rank in them, and the ranks' hosts and racks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.logdir.layout import worker_host
from visualprof.reader.trace import Ints
from visualprof.reader.trace.process_group import ProcessGroup, Runs, decode_ranks, encode_ranks
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.call_matching import MatchedCalls
from visualprof.views.measure.ranks.rank_summary import RankSummary

GroupRole = Literal["data", "tensor", "pipeline", "expert", "world", "unknown"]
RoleSource = Literal["description", "structure", "nothing"]
AXES: tuple[GroupRole, ...] = ("data", "tensor", "pipeline", "expert")

# Words of torch's device meshes, Megatron, DeepSpeed, FSDP and vLLM; a group with words of two axes has neither role.
_ROLE_WORDS: dict[str, GroupRole] = {
    **dict.fromkeys(("data", "dp", "ddp", "fsdp", "hsdp", "shard", "replicate", "zero"), "data"),
    **dict.fromkeys(("tensor", "tp"), "tensor"),
    **dict.fromkeys(("pipeline", "pipe", "pp"), "pipeline"),
    **dict.fromkeys(("expert", "ep", "moe"), "expert"),
    **dict.fromkeys(("default", "world"), "world"),
}
_OTHER_AXIS_WORDS = frozenset(("embedding", "embd", "context", "cp", "sequence", "sp"))
_RACK_NAME = re.compile(r"(?<![A-Za-z0-9])(?:rack|cabinet)[-_]?[A-Za-z]?\d+", re.IGNORECASE)


class RunGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group of a run.

    Attributes:
        name: Name in the profiles, "" unknown.
        description: Description in the profiles, "" unknown.
        members: Global ranks, in the order of their ranks in the group.
        profiled_members: Members that have a profile.
        runs: Members as runs.
        role: Purpose of the group.
        role_source: How the role was determined.
    """

    name: str
    description: str
    members: tuple[int, ...]
    profiled_members: tuple[int, ...]
    runs: Runs
    role: GroupRole
    role_source: RoleSource


class ProcessGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The process groups of n ranks, in the order of the ranks.

    Attributes:
        ranks: (n,) global ranks, ascending.
        groups: Every group that a rank lists or communicated in, larger ones first.
        hosts: (n,) names, "" unknown.
        racks: (n,) names, "" unknown.
        axis_group: Per parallelism axis of the run, (n,) index in `groups` of the largest group of
            that role with the rank, -1 for none.
        axis_position: Per axis, (n,) rank in that group, such as the pipeline stage or the tensor
            shard; -1 for none.
    """

    ranks: tuple[int, ...]
    groups: tuple[RunGroup, ...]
    hosts: tuple[str, ...]
    racks: tuple[str, ...]
    axis_group: Mapping[GroupRole, Ints]
    axis_position: Mapping[GroupRole, Ints]

    def group_indices(self, groups: Iterable[ProcessGroup]) -> Ints:
        """Return the index of each group among the groups of the run, -1 if its members are unknown."""
        index_of = {(process_group.name, process_group.runs): i for i, process_group in enumerate(self.groups)}
        return np.array(
            [index_of.get((process_group.name, process_group.runs), -1) for process_group in groups], np.int64
        )


class _GroupUse(msgspec.Struct):
    """Uses of a group.

    Attributes:
        description: Description, "" unknown.
        kinds: Kinds of its calls: `message`, `all_to_all` or `other`.
    """

    description: str = ""
    kinds: set[str] = msgspec.field(default_factory=set[str])


def find_process_groups(
    ranks: Sequence[tuple[str, RankSummary]], rank_numbers: Sequence[int], calls: MatchedCalls
) -> ProcessGroups:
    """Return the process groups of a run.

    The role is that of the description, if that names one axis. Otherwise it is inferred:

    - pipeline: the group sends messages
    - expert: the group uses all-to-all
    - tensor: the members are consecutive ranks on one host
    - data: any other group that communicates

    If messages are sent between ranks of the world group only, the chains of ranks that they
    connect are the pipelines. The rack is read from the host's name (`rack3-node12`).

    Args:
        ranks: Workers and their summaries.
        rank_numbers: Their global ranks, ascending.
        calls: The calls of all of them.
    """
    hosts = tuple(summary.host or worker_host(worker) for worker, summary in ranks)
    host_by_rank = dict(zip(rank_numbers, hosts, strict=True))
    uses = _group_uses([summary for _, summary in ranks], calls)
    size = max([len(rank_numbers), *(summary.location.world_size for _, summary in ranks)])
    groups = list[RunGroup]()
    for (name, runs), use in uses.items():
        members: tuple[int, ...] = tuple(decode_ranks(runs).tolist())
        role, role_source = _infer_role(use, members, size, host_by_rank)
        profiled_members = tuple(rank for rank in members if rank in host_by_rank)
        groups.append(
            RunGroup(
                name=name,
                description=use.description,
                members=members,
                profiled_members=profiled_members,
                runs=runs,
                role=role,
                role_source=role_source,
            )
        )
    if not any(process_group.role == "pipeline" for process_group in groups):
        groups += _message_chains(calls, host_by_rank)
    groups.sort(key=lambda process_group: (-len(process_group.members), process_group.members, process_group.name))
    axis_group, axis_position = _axis_positions(groups, rank_numbers)
    return ProcessGroups(
        ranks=tuple(rank_numbers),
        groups=tuple(groups),
        hosts=hosts,
        racks=tuple(_rack_of_host(host) for host in hosts),
        axis_group=axis_group,
        axis_position=axis_position,
    )


def _group_uses(summaries: Sequence[RankSummary], calls: MatchedCalls) -> dict[tuple[str, Runs], _GroupUse]:
    """Return the groups that ranks list or communicate in, by name and members."""
    uses: dict[tuple[str, Runs], _GroupUse] = {}
    for summary in summaries:
        for process_group in (
            *summary.groups,
            *(process_group for process_group in summary.collectives.groups if process_group.runs),
        ):
            use = uses.setdefault((process_group.name, process_group.runs), _GroupUse())
            use.description = use.description or process_group.description
    kind_ids = np.array([_call_kind(name) for name in calls.names], np.int64)[calls.name]
    by_kind = group(calls.group, kind_ids)
    pairs: list[tuple[int, int]] = np.stack((calls.group, kind_ids), axis=1)[by_kind.first].tolist()
    for group_index, kind_index in pairs:
        process_group = calls.groups[group_index]
        if process_group.runs:
            uses[process_group.name, process_group.runs].kinds.add(_CALL_KINDS[kind_index])
    return uses


_CALL_KINDS = ("other", "all_to_all", "message")


def _call_kind(name: str) -> int:
    """Return the index in `_CALL_KINDS` of a call's name."""
    word = name.replace("_", "").lower()
    return 2 if re.search(r"send|recv", word) else 1 if "alltoall" in word else 0


def _infer_role(
    use: _GroupUse, members: tuple[int, ...], world_size: int, hosts: Mapping[int, str]
) -> tuple[GroupRole, RoleSource]:
    """Return the role of a group, and how it was determined."""
    words = re.findall(r"[a-z]+", use.description.lower())
    axes: set[GroupRole] = {_ROLE_WORDS[word] for word in words if word in _ROLE_WORDS}
    if _OTHER_AXIS_WORDS.isdisjoint(words) or axes == {"data"}:
        if axes == {"expert", "data"}:  # data parallel replicas of experts
            return "data", "description"
        if len(axes) == 1:
            return axes.pop(), "description"
    if len(members) >= world_size:
        return "world", "structure"
    if words or not use.kinds:
        return "unknown", "nothing"
    if "message" in use.kinds:
        return "pipeline", "structure"
    if "all_to_all" in use.kinds:
        return "expert", "structure"
    if len(members) < 2:
        return "unknown", "nothing"
    member_hosts = {hosts.get(rank, "") for rank in members}
    if members == tuple(range(members[0], members[0] + len(members))):
        return (
            ("unknown", "nothing")
            if "" in member_hosts
            else ("tensor" if len(member_hosts) == 1 else "data", "structure")
        )
    return "data", "structure"


def _message_chains(calls: MatchedCalls, host_of_rank: Mapping[int, str]) -> list[RunGroup]:
    """Return pipelines of a run that has no groups for them: sets of ranks that messages connect."""
    messages = calls.source >= 0
    ends = np.stack((calls.source[messages], calls.destination[messages]), axis=1)
    edges: list[tuple[int, int]] = ends[group(ends[:, 0], ends[:, 1]).first].tolist()
    parent: dict[int, int] = {}

    def find_root(rank: int) -> int:
        while parent.setdefault(rank, rank) != rank:
            parent[rank] = rank = parent[parent[rank]]
        return rank

    for source, destination in edges:
        smaller, larger = sorted((find_root(source), find_root(destination)))
        parent[larger] = smaller
    chains: dict[int, list[int]] = {}
    for rank in sorted(parent):
        chains.setdefault(find_root(rank), []).append(rank)
    return [
        RunGroup(
            name="",
            description="",
            members=tuple(chain),
            profiled_members=tuple(rank for rank in chain if rank in host_of_rank),
            runs=encode_ranks(chain),
            role="pipeline",
            role_source="structure",
        )
        for chain in chains.values()
    ]


def _axis_positions(
    groups: Iterable[RunGroup], numbers: Sequence[int]
) -> tuple[dict[GroupRole, Ints], dict[GroupRole, Ints]]:
    """Return the group of every rank per axis, and its position in that group; the first of several groups counts."""
    row_of_rank = {number: position for position, number in enumerate(numbers)}
    axis_group: dict[GroupRole, Ints] = {}
    axis_position: dict[GroupRole, Ints] = {}
    for group_index, process_group in enumerate(groups):
        if process_group.role not in AXES or len(process_group.members) < 2:
            continue
        for columns in (axis_group, axis_position):
            columns.setdefault(process_group.role, np.full(len(numbers), -1, np.int64))
        known_members = [
            (row_of_rank[rank], position) for position, rank in enumerate(process_group.members) if rank in row_of_rank
        ]
        assigned = np.array(
            [(row, position) for row, position in known_members if axis_group[process_group.role][row] < 0], np.int64
        ).reshape(-1, 2)
        axis_group[process_group.role][assigned[:, 0]] = group_index
        axis_position[process_group.role][assigned[:, 0]] = assigned[:, 1]
    return axis_group, axis_position


def _rack_of_host(host: str) -> str:
    """Return the rack that a host's name contains, "" for none."""
    match = _RACK_NAME.search(host)
    return match.group() if match else ""
