"""What people are told of, and in which languages. It needs no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["job_finished", "job_failed", "machine_lost", "regression", "trial"]
Language = Literal["en", "zh"]


@dataclass(frozen=True)
class Regression:
    """A regression: what takes so much longer.

    ratio: 0.12 is 12 % longer. before_ns: when it was measured before. reports: ids of the runs, then and now.
    more: how many other points of the job are slower, too.
    """

    ratio: float
    before_ns: int
    reports: list[str]
    more: int


@dataclass(frozen=True, kw_only=True)
class Notification:
    """What somebody is told.

    subject: id of a job or machine, whose name it also has; of a regression the name is that of the point. slower: null
    for anything else.
    """

    seq: int
    kind: Kind
    subject: str
    name: str
    at_ns: int
    read: bool
    slower: Regression | None = None
