"""How the server behaves; apart, because it is there before the application is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from visualprof.accounts.principal import Registration
from visualprof.remote.queue.store.bucket_url import DEFAULT_CACHE_BYTES, BucketLocation

DIST = Path(__file__).parents[1] / "frontend" / "dist"


@dataclass(frozen=True)
class Settings:
    """How the server behaves.

    language: of the page when the browser has not chosen; "" leaves it to the browser.
    read_only: refuse everything that is not a question. host: the address it is bound to.
    allowed_hosts: names besides localhost by which browsers may call it; "*" is any.
    embedded_in: origins of pages, besides its own, that may show it in a frame.
    dist: the built page. engine: what reads files, as `engines.start` names it.
    data: where jobs are kept instead of the first log directory's `.visualprof`.
    database: its URL, with a password perhaps; "" is a file there.
    store: the bucket of uploads and of results on their way; None keeps them in `data`. store_runs: and of runs.
    cache_bytes: of copies beside the server.
    with_agent: run jobs on this machine. lease_s: how long an agent may be silent.
    token: without it nothing is changed and the registration token is not shown; "" asks for none.
    private: it is asked for reading, too.
    accounts: people log in instead; registration: whether they make their accounts themselves.
    base_url: by which browsers reach it, where a proxy is in front. proxies: networks whose word on senders counts.
    user_header: in which those say who is logged in; "" has people log in here.
    oidc: the issuer of OpenID Connect at which people may log in, "" is none; oidc_client, oidc_secret: of this server
    there. oidc_admin_group: whose members are administrators.
    smtp: sends e-mail, with its user in it; "" sends none. smtp_password: that user's. mail_from: "" is that user.
    webhook_networks: private networks to which notices may be sent.
    slower: by what share a point takes longer than before when its owner is told.
    """

    language: str = ""
    read_only: bool = False
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    embedded_in: tuple[str, ...] = ()
    dist: Path = field(default=DIST)
    engine: str = "processes"
    data: Path | None = None
    database: str = field(default="", repr=False)
    store: BucketLocation | None = None
    store_runs: bool = False
    cache_bytes: int = DEFAULT_CACHE_BYTES
    with_agent: bool = False
    lease_s: float = 30.0
    token: str = ""
    private: bool = False
    accounts: bool = False
    registration: Registration = "invitation"
    base_url: str = ""
    proxies: tuple[str, ...] = ()
    user_header: str = ""
    oidc: str = ""
    oidc_client: str = ""
    oidc_secret: str = field(default="", repr=False)
    oidc_admin_group: str = ""
    smtp: str = ""
    smtp_password: str = field(default="", repr=False)
    mail_from: str = ""
    webhook_networks: tuple[str, ...] = ()
    regression_threshold: float = 0.05

    @property
    def secure(self) -> bool:
        """Do browsers reach it by TLS?"""
        return self.base_url.startswith("https:")
