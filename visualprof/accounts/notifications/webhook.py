"""Sending of signed JSON to users' webhooks, only to public addresses and allowed networks.

The name is resolved once and the connection uses the checked address, so that DNS rebinding has no effect. Redirects
are
not followed, and only the status of the answer is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg

TIMEOUT_S = 10.0  # from the connection to the status
_LIKE = msg("accounts.like_https_chat_example", "like https://chat.example.org/hooks/abc")
# IPv6 networks whose addresses a gateway translates to IPv4 addresses.
_TRANSLATED = [ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")]
# Networks that Python counts as public: Azure's metadata service, protocol assignments, and site-local addresses.
_SPECIAL = [ipaddress.ip_network(text) for text in ("168.63.129.16/32", "192.0.0.0/24", "fec0::/10")]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class DeliveryError(VisualprofError):
    """A delivery that failed."""


@dataclass(frozen=True)
class WebhookTarget:
    """The parts of a webhook's URL. The path includes the query."""

    secure: bool
    host: str
    port: int
    path: str


def target_of(url: str) -> WebhookTarget:
    """Parse the URL of a webhook.

    Raises:
        BadParameter: The URL is not valid for a webhook.
    """
    if not url.isascii() or not url.isprintable() or " " in url or len(url) > 1000:
        raise BadParameter(
            msg("accounts.webhook_address_ascii_characters", "webhook: an address has ASCII characters without spaces"),
            _LIKE,
        )
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise BadParameter(msg("accounts.webhook", f"webhook: {error}"), _LIKE) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadParameter(msg("accounts.webhook_begins_https", "webhook: it begins with https://"), _LIKE)
    if parts.username is not None or parts.password is not None:
        raise BadParameter(
            msg("accounts.webhook_address_user_password", "webhook: an address with a user or password is not taken"),
            _LIKE,
        )
    if port not in (80, 443) and port < 1024:
        raise BadParameter(
            msg("accounts.webhook_port_another_service", "webhook: its port is that of another service"),
            msg("accounts.80_443_1024", "80, 443, or from 1024"),
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(parts.scheme == "https", parts.hostname, port, path)


def signature(secret: str, at_s: int, body: bytes) -> str:
    """Return the header X-Visualprof-Signature: the time, and HMAC-SHA256 of `TIME.BODY` with the webhook's secret."""
    mac = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256)
    return f"t={at_s},v1={mac.hexdigest()}"


def send_webhook(url: str, secret: str, body: bytes, delivery: int, networks: Sequence[str] = ()) -> None:
    """Send JSON to a webhook.

    Args:
        url: URL of the webhook.
        secret: Secret that signs the body.
        body: JSON.
        delivery: Number of the delivery; a repeated number is the same delivery.
        networks: Allowed private networks.

    Raises:
        DeliveryError: The delivery failed.
        BadParameter: The URL is not valid for a webhook.
    """
    target = target_of(url)
    name = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {name}:{target.port}",
        "User-Agent: visualprof",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"X-Visualprof-Delivery: {delivery}",
        f"X-Visualprof-Signature: {signature(secret, int(time.time()), body)}",
        "Connection: close",
    ]
    try:
        status = _post(target, _addresses(target, networks), "\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    except (OSError, ValueError) as error:  # refused, too slow, a wrong certificate; a name that is none
        raise DeliveryError(f"{target.host}: {error}") from error
    if 300 <= status < 400:
        raise DeliveryError(
            msg("accounts.sends_elsewhere", f"{target.host} sends it elsewhere ({status})"),
            msg("accounts.give_address_redirects", "give the address that it redirects to"),
        )
    if not 200 <= status < 300:
        raise DeliveryError(msg("accounts.answered", f"{target.host} answered with {status}"))


def _addresses(target: WebhookTarget, networks: Sequence[str]) -> list[str]:
    """Return the addresses of the host.

    Raises:
        DeliveryError: An address is not public.
        OSError: The name cannot be resolved.
    """
    results = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(result[4][0]) for result in results))
    for text in addresses:
        if not _may_reach(ipaddress.ip_address(text), networks):
            raise DeliveryError(
                msg("accounts.no_public_address", f"{target.host} is no public address"),
                msg("accounts.administrator_may_allow_webhook", "an administrator may allow it: --webhook-network"),
            )
    return addresses


def _may_reach(address: Address, networks: Sequence[str]) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if any(address in ipaddress.ip_network(network, strict=False) for network in networks):
        return True
    special = (
        address.is_multicast or address.is_reserved or any(address in network for network in (*_TRANSLATED, *_SPECIAL))
    )
    return address.is_global and not special


def _post(target: WebhookTarget, addresses: Sequence[str], request: bytes) -> int:
    """Send a request and return the status of the answer.

    Raises:
        OSError: The connection failed.
    """
    deadline = time.monotonic() + TIMEOUT_S
    plain = _connected(addresses, target.port, deadline)
    with contextlib.closing(plain):
        if not target.secure:
            return _status(plain, request, deadline)
        with ssl.create_default_context().wrap_socket(plain, server_hostname=target.host) as safe:
            return _status(safe, request, deadline)


def _connected(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """Return a connection to the first address that answers."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), _left_s(deadline) / 2)
    return socket.create_connection((addresses[-1], port), _left_s(deadline))


def _status(connection: socket.socket, request: bytes, deadline: float) -> int:
    connection.settimeout(_left_s(deadline))
    connection.sendall(request)
    line = b""
    while len(line) < 12:  # HTTP/1.1 200; an endless answer is not read
        connection.settimeout(_left_s(deadline))
        more = connection.recv(12 - len(line))
        if not more:
            break
        line += more
    if not line.startswith(b"HTTP/1.") or not line[9:12].isdigit():
        raise ValueError(msg("accounts.not_answer_http", "it does not answer by HTTP"))
    return int(line[9:12])


def _left_s(deadline: float) -> float:
    """Return the remaining time.

    Raises:
        TimeoutError: No time is left.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(msg("accounts.no_answer_within_s", f"no answer within {TIMEOUT_S:g} s"))
    return left
