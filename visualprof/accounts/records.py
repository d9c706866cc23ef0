"""Rows of the accounts' tables as values, as the API returns them. This module needs no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from visualprof.accounts.principal import Principal, Role


@dataclass(frozen=True, kw_only=True)
class User:
    """A user with an account. seen_ns is None before the first log-in."""

    id: str
    email: str
    name: str
    role: Role
    disabled: bool
    created_ns: int
    seen_ns: int | None

    @property
    def principal(self) -> Principal:
        """The principal of the user's requests."""
        return Principal(self.id, self.email, self.name, self.role)


@dataclass(frozen=True)
class Token:
    """A token for commands and CI.

    Attributes:
        id: Id of the token.
        name: Name of the token.
        role: Upper bound of its permissions.
        created_ns: When it was created.
        expires_ns: When it expires.
        used_ns: When it was last used; None before the first use.
    """

    id: str
    name: str
    role: Role
    created_ns: int
    expires_ns: int
    used_ns: int | None


@dataclass(frozen=True)
class AuditEvent:
    """An event of the audit log. email is the user's address, or the one that a client claimed."""

    seq: int
    at_ns: int
    user: str | None
    email: str
    action: str
    subject: str
    address: str


@dataclass(frozen=True)
class Member:
    """A member of a project."""

    user: str
    email: str
    name: str


@dataclass(frozen=True)
class Project:
    """A group of users who share runs."""

    id: str
    name: str
    members: list[Member]


@dataclass(frozen=True)
class Grant:
    """For whom a private machine works, in addition to its owner.

    Attributes:
        holder: Id of the user or project.
        kind: Kind of the holder.
        name: Name of the project, or e-mail address of the user.
    """

    holder: str
    kind: Literal["user", "project"]
    name: str
