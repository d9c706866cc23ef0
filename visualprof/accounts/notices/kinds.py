"""What people are told of, and in which languages. It needs no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["job_finished", "job_failed", "machine_lost", "trial"]
Language = Literal["en", "zh"]


@dataclass(frozen=True)
class Notice:
    """What somebody is told. subject: id of a job or machine, whose name it also has."""

    seq: int
    kind: Kind
    subject: str
    name: str
    at_ns: int
    read: bool
