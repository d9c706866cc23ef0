"""Kinds and languages of notifications. This module needs no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["job_finished", "job_failed", "machine_lost", "regression", "trial"]
Language = Literal["en", "zh"]


@dataclass(frozen=True)
class Regression:
    """A regression.

    Attributes:
        ratio: 0.12 is 12 % slower.
        before_ns: Time of the previous measurement.
        reports: Ids of the runs, the previous one first.
        more: Number of other slower points of the job.
    """

    ratio: float
    before_ns: int
    reports: list[str]
    more: int


@dataclass(frozen=True, kw_only=True)
class Notification:
    """A notification.

    Attributes:
        seq: Number of the notification.
        kind: Kind of the event.
        subject: Id of the job or machine.
        name: Name of the job or machine; of a regression, name of the point.
        at_ns: Time of the event.
        read: Whether the user has read it.
        slower: The regression; null for other kinds.
    """

    seq: int
    kind: Kind
    subject: str
    name: str
    at_ns: int
    read: bool
    slower: Regression | None = None
