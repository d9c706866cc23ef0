"""Who asks: somebody with an account, nobody, or, on a server without accounts, everybody. It needs no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal["viewer", "member", "admin"]
Visibility = Literal["private", "project", "public"]
Registration = Literal["open", "invitation", "off"]
ROLES: tuple[Role, ...] = get_args(Role)


def lower_role(a: Role, b: Role) -> Role:
    """The role that may less."""
    return ROLES[min(ROLES.index(a), ROLES.index(b))]


@dataclass(frozen=True)
class Principal:
    """Who a request is from.

    user: id; None for nobody, and without accounts. role: None for nobody. session: id of the session, "" for a token.
    csrf: what a page must say with every change, as a cookie is also sent by pages that are not ours; "" for a token.
    sees_all: there are no accounts. scope: the only run that it sees, by a link; None is no such bound.
    ends_ns: of the link.
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
        """Is this its role, or one below?"""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)

    @property
    def viewer(self) -> str | None:
        """Whose rows it sees; None is everybody's. Whoever came by a link is nobody whose rows there are."""
        if self.scope is not None:
            return f"{LINK_PREFIX}{self.scope}"
        return None if self.sees_all or self.role == "admin" else self.user or ""


@dataclass(frozen=True)
class Actor:
    """Who acts, and from which address."""

    principal: Principal
    address: str

    @property
    def user(self) -> str | None:
        """Its id."""
        return self.principal.user


LINK_PREFIX = "vp_l_"  # before the code of a link to one run
TOKEN_PREFIX = "vp_u_"  # before a token for commands
MAX_LINK_HOURS = 90 * 24  # that a link to a run lasts
ANONYMOUS = Principal()
SINGLE_USER = Principal(role="admin", sees_all=True)  # without accounts: whoever has the server's token
READER = Principal(role="viewer", sees_all=True)  # and whoever lacks it
