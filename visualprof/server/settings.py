"""Settings of the server, in a separate module so that they can be used without importing the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from visualprof.accounts.principal import Registration
from visualprof.remote.queue.store.bucket_url import DEFAULT_CACHE_BYTES, BucketLocation

DIST = Path(__file__).parents[1] / "frontend" / "dist"


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    Attributes:
        language: Language of the web UI if the browser has not chosen one. "" leaves the choice to the browser.
        read_only: Reject every request that changes data.
        host: Address that the server listens on.
        allowed_hosts: Names besides localhost by which browsers may reach the server. "*" allows any name.
        embedded_in: Origins of other sites that may show the web UI in a frame.
        dist: Folder of the built web UI.
        engine: Engine that parses files, named as in `engines.start`.
        data: Folder for jobs instead of the first log directory's `.visualprof`.
        database: Database URL, which may contain a password. "" uses a file in the data folder.
        store: Bucket for uploads and for results in transit. `None` keeps them in `data`.
        store_runs: Keep runs in the bucket as well.
        cache_bytes: Maximum size of local copies of stored files, in bytes.
        follow_links: Also show targets of links out of the log directories. Not with `accounts`.
        with_agent: Run jobs on this machine.
        lease_s: Seconds without a heartbeat after which an agent counts as offline.
        token: Token required to change data and to see the registration token. "" requires none.
        private: Require the token for reading as well.
        demo: Whether the log directory has the samples of `visualprof demo`.
        accounts: Let users log in instead of using the token.
        registration: Whether users may create accounts themselves.
        base_url: URL by which browsers reach the server behind a proxy.
        proxies: Networks of proxies whose forwarding headers are trusted.
        user_header: Header in which a trusted proxy names the logged-in user. "" lets users log in here.
        oidc: OpenID Connect issuer for log-ins. "" for none.
        oidc_client: Client id of this server at the issuer.
        oidc_secret: Client secret of this server at the issuer.
        oidc_admin_group: Group of the issuer whose members are administrators.
        smtp: URL of the mail server, including its user. "" sends no e-mail.
        smtp_password: Password of the mail user.
        mail_from: Sender address. "" uses the mail user.
        webhook_networks: Private networks to which notifications may be sent.
        regression_threshold: Relative slowdown of a measurement above which its owner is notified.
        queries: Whether users may run SQL: "auto" runs queries of accounts only if the kernel can confine them.
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
    follow_links: bool = False
    with_agent: bool = False
    lease_s: float = 30.0
    token: str = ""
    private: bool = False
    demo: bool = False
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
    queries: Literal["auto", "on", "off"] = "auto"

    @property
    def secure(self) -> bool:
        """Whether browsers reach the server over TLS."""
        return self.base_url.startswith("https:")
