"""Settings of the server, in a separate module so that they can be used without importing the application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from visualprof.accounts.principal import Registration
from visualprof.remote.queue.settings import QueueSettings
from visualprof.setting_options import (
    address,
    declared_options,
    issuer,
    mail_server,
    network,
    number,
    option,
    settings_from,
)

DIST = Path(__file__).parents[1] / "frontend" / "dist"


@dataclass(frozen=True)
class WebSettings:
    """How browsers reach the web UI.

    Attributes:
        dist: Folder of the built web UI.
        demo: Whether the log directory has the samples of `visualprof demo`.
    """

    host: str = option("--host", "127.0.0.1", "Address to listen on (default: %(default)s, this machine only).")
    language: str = option("--language", "", "Language of the web UI (default: the browser's).", choices=("en", "zh"))
    allowed_hosts: tuple[str, ...] = option(
        "--allow-host",
        (),
        "Additional host name that browsers may use for this server, for example behind a proxy; * allows any; "
        "repeatable.",
        metavar="NAME",
    )
    embedded_in: tuple[str, ...] = option(
        "--embed-in", (), "Origin of a page that may show the dashboard in a frame; repeatable.", metavar="ORIGIN"
    )
    base_url: str = option(
        "--base-url", "", "Address by which browsers reach this server through a proxy.", metavar="URL", check=address
    )
    proxies: tuple[str, ...] = option(
        "--trust-proxy",
        (),
        "Network of the proxy whose X-Forwarded-For header is trusted; repeatable.",
        metavar="CIDR",
        check=network,
    )
    dist: Path = field(default=DIST)
    demo: bool = False

    @property
    def secure(self) -> bool:
        """Whether browsers reach the server over TLS."""
        return self.base_url.startswith("https:")


@dataclass(frozen=True)
class ReadingSettings:
    """How profile files are read."""

    follow_links: bool = option(
        "--follow-links",
        False,
        "Also show targets of links out of the log directories (default: list them as skipped).",
    )
    engine: str = option(
        "--engine",
        "processes",
        "What parses profile files: processes (of this machine), ray, ray://head:10001, dask or tcp://host:8786 "
        "(default: %(default)s).",
        metavar="E",
    )


@dataclass(frozen=True)
class AccessSettings:
    """Rights to read and change data.

    Attributes:
        token: Token required to change data and to see the registration token. "" requires none.
        queries: Whether users may run SQL: "auto" runs queries of accounts only if the kernel can confine them.
    """

    read_only: bool = option("--read-only", False, "Reject every request that would change something.")
    private: bool = option("--private", False, "Require the token for read requests as well.")
    accounts: bool = option("--accounts", False, "Require users to log in. See `visualprof admin`.")
    registration: Registration = option(
        "--registration",
        "invitation",
        "Who may create an account, with --accounts (default: %(default)s).",
        choices=("open", "invitation", "off"),
    )
    user_header: str = option(
        "--user-header", "", "Header in which the proxy names the logged-in user, with --accounts.", metavar="NAME"
    )
    token: str = ""
    queries: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True)
class OidcSettings:
    """Log-ins with OpenID Connect."""

    oidc: str = option(
        "--oidc", "", "OpenID Connect issuer by which users can log in, with --accounts.", metavar="URL", check=issuer
    )
    oidc_client: str = option("--oidc-client", "", "Client id of this server at the issuer.", metavar="ID")
    oidc_admin_group: str = option(
        "--oidc-admin-group", "", "Group of the issuer whose members are administrators.", metavar="NAME"
    )
    oidc_secret: str = option("", "", "Client secret at the issuer.", variable="VISUALPROF_OIDC_SECRET")


@dataclass(frozen=True)
class NotificationSettings:
    """How users are notified."""

    smtp: str = option(
        "--smtp",
        "",
        "Mail server for notifications and invitations, such as smtps://user@mail.example.org.",
        metavar="URL",
        check=mail_server,
    )
    mail_from: str = option(
        "--mail-from", "", "Sender address of e-mail (default: the user of --smtp).", metavar="ADDRESS"
    )
    smtp_password: str = option("", "", "Password of the mail user.", variable="VISUALPROF_SMTP_PASSWORD")
    webhook_networks: tuple[str, ...] = option(
        "--webhook-network",
        (),
        "Private network to which users may send notifications; repeatable.",
        metavar="CIDR",
        check=network,
    )
    regression_threshold: float = option(
        "--slower",
        0.05,
        "Notify owners of a regression larger than PERCENT (default: %(default)g %%).",
        metavar="PERCENT",
        check=number(0, 1000, "0 to 1000 percent"),
        unit=0.01,
    )


@dataclass(frozen=True)
class Settings:
    """Settings of a server, in groups."""

    web: WebSettings = WebSettings()
    reading: ReadingSettings = ReadingSettings()
    access: AccessSettings = AccessSettings()
    oidc: OidcSettings = OidcSettings()
    notifications: NotificationSettings = NotificationSettings()
    queue: QueueSettings = field(default_factory=QueueSettings)

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> Settings:
        """Return the settings of parsed options."""
        return cls(**{name: settings_from(group, values) for name, group in GROUPS.items()})


GROUPS: dict[str, type[Any]] = {
    "web": WebSettings,
    "reading": ReadingSettings,
    "access": AccessSettings,
    "oidc": OidcSettings,
    "notifications": NotificationSettings,
    "queue": QueueSettings,
}
SECRETS = {
    setting.name: declared.variable for setting, declared in declared_options(*GROUPS.values()) if not declared.flag
}
