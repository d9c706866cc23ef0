"""Create the log-in methods in addition to passwords, and the sender of e-mail, from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visualprof.server.settings import NotificationSettings, Settings

if TYPE_CHECKING:
    from visualprof.accounts.external_login import OidcLogin
    from visualprof.accounts.mail_links import AccountLinkMailer
    from visualprof.accounts.notifications.mail import Mailer
    from visualprof.accounts.proxy_login import ProxyAuth
    from visualprof.accounts.service import Accounts
    from visualprof.server.job_service import JobService


def open_proxy_login(settings: Settings, job_service: JobService) -> ProxyAuth:
    """Return the log-in by a trusted proxy."""
    from visualprof.accounts.proxy_login import ProxyAuth

    queue = job_service.open()
    return ProxyAuth(queue.database, settings.access.registration, queue.signer)


def open_login_providers(
    settings: Settings, accounts: Accounts | None
) -> tuple[OidcLogin | None, AccountLinkMailer | None]:
    """Return the log-in methods in addition to passwords: an OpenID issuer, and links by e-mail."""
    if accounts is None:
        return None, None
    from visualprof.accounts.external_login import OidcLogin
    from visualprof.accounts.issuer import Issuer
    from visualprof.accounts.mail_links import AccountLinkMailer

    issued, mail, base_url = None, create_mailer(settings.notifications), settings.web.base_url
    if (oidc := settings.oidc).oidc:
        issuer = Issuer(oidc.oidc, oidc.oidc_client, oidc.oidc_secret, f"{base_url}/", oidc.oidc_admin_group)
        issued = OidcLogin(accounts.database, accounts.registration, issuer, accounts.users)
    # A client chooses the address by which it reaches the server, so links need the configured address.
    return issued, AccountLinkMailer(accounts.database, mail, base_url) if mail and base_url else None


def create_mailer(settings: NotificationSettings) -> Mailer | None:
    """Return the sender of e-mail, `None` if no mail server is configured.

    Raises:
        BadParameter: E-mail would have no sender.
    """
    from visualprof.accounts.notifications.mail import Mailer

    return Mailer(settings.smtp, settings.smtp_password, settings.mail_from) if settings.smtp else None
