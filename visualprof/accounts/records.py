"""Rows of the tables of accounts as values, as the API answers with them. They need no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from visualprof.accounts.principal import Principal, Role


@dataclass(frozen=True, kw_only=True)
class User:
    """Somebody with an account. seen_ns: None before the first log-in."""

    id: str
    email: str
    name: str
    role: Role
    disabled: bool
    created_ns: int
    seen_ns: int | None

    @property
    def principal(self) -> Principal:
        """Who it is when it asks."""
        return Principal(self.id, self.email, self.name, self.role)


@dataclass(frozen=True)
class Token:
    """For commands and CI. role: the most that it may do. used_ns: None before its first use."""

    id: str
    name: str
    role: Role
    created_ns: int
    expires_ns: int
    used_ns: int | None


@dataclass(frozen=True)
class AuditEvent:
    """What somebody did. email: theirs, or what they said it was."""

    seq: int
    at_ns: int
    user: str | None
    email: str
    action: str
    subject: str
    address: str


@dataclass(frozen=True)
class Member:
    """Somebody in a project."""

    user: str
    email: str
    name: str


@dataclass(frozen=True)
class Project:
    """People who share runs."""

    id: str
    name: str
    members: list[Member]


@dataclass(frozen=True)
class Grant:
    """For whom a private machine works beside its owner. holder: its id. name: of a user the address."""

    holder: str
    kind: Literal["user", "project"]
    name: str
