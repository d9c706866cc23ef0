"""Principals: a user, an anonymous visitor, or any client of a server without accounts. Needs no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal["viewer", "member", "admin"]
Visibility = Literal["private", "project", "public"]
Registration = Literal["open", "invitation", "off"]
ROLES: tuple[Role, ...] = get_args(Role)


def lower_role(a: Role, b: Role) -> Role:
    """Return the role with fewer permissions."""
    return ROLES[min(ROLES.index(a), ROLES.index(b))]


@dataclass(frozen=True)
class Principal:
    """The origin of a request.

    Attributes:
        user: Id of the user; None for visitors, and without accounts.
        email: E-mail address.
        name: Name.
        role: Role; None for anonymous visitors.
        session: Id of the session, "" for a token.
        csrf: Proof that a page must send with every change, because browsers also send cookies for other sites' pages;
            ""
            for a token.
        sees_all: Whether the server has no accounts.
        scope: The only visible run, for visitors with a link; None is unlimited.
        ends_ns: When the link expires.
    """

    user: str | None = None
    email: str = ""
    name: str = ""
    role: Role | None = None
    session: str = ""
    csrf: str = ""
    sees_all: bool = False
    scope: str | None = None
    ends_ns: int | None = None

    def may(self, role: Role) -> bool:
        """Return whether the role includes `role`."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)

    @property
    def viewer(self) -> str | None:
        """Viewer as in `visibility`; None sees everything. Visitors with a link are viewers without rows."""
        if self.scope is not None:
            return f"{LINK_PREFIX}{self.scope}"
        return None if self.sees_all or self.role == "admin" else self.user or ""


@dataclass(frozen=True)
class Actor:
    """A principal and the address of its client."""

    principal: Principal
    address: str

    @property
    def user(self) -> str | None:
        """Id of the user."""
        return self.principal.user


LINK_PREFIX = "vp_l_"  # prefix of the codes of links
TOKEN_PREFIX = "vp_u_"  # prefix of tokens for commands
MAX_LINK_HOURS = 90 * 24  # maximum lifetime of a link
ANONYMOUS = Principal()
SINGLE_USER = Principal(role="admin", sees_all=True)  # a server without accounts: clients with the server's token
READER = Principal(role="viewer", sees_all=True)  # a server without accounts: clients without the token
