"""Transfers between two ranks over one type of link, as some profilers sum them up."""

from __future__ import annotations

import msgspec


class RankTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """All transfers of one operation from one rank of a group to another over one type of link.

    Attributes:
        operation: Operation of the collectives or messages, such as `allreduce`.
        group: Name of the process group, or the number by which the recording identifies the group.
        link: Type of the link, such as `HCCS`; `LOCAL` for copies within a device.
        group_source: Rank of the sender in the group.
        group_destination: Rank of the receiver in the group.
        source: Global rank of the sender, -1 if the members of the group are unknown.
        destination: Global rank of the receiver, -1 if unknown.
        bytes: Bytes transferred.
        link_ns: Time of the transfers; parallel transfers add up.
    """

    operation: str
    group: str
    link: str
    group_source: int
    group_destination: int
    source: int = -1
    destination: int = -1
    bytes: int = 0
    link_ns: int = 0
