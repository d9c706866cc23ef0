"""Names and addresses of machines in URLs and headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence


def is_ip_address(host: str) -> bool:
    """Whether a host is an IP address, with or without brackets, and not a name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is the loopback, by name or by address."""
    return host == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def original_client(peer: str, forwarded: Sequence[str], proxies: Sequence[str]) -> str:
    """Return the address of the client: the nearest one that is not a trusted proxy.

    Args:
        peer: Address of the connection.
        forwarded: `X-Forwarded-For` headers, which are trusted only if a trusted proxy sent them.
        proxies: Networks of trusted proxies, such as 10.0.0.0/8.
    """
    chain = [part.strip() for header in forwarded for part in header.split(",") if header]
    while chain and is_proxy(peer, proxies):
        peer = chain.pop()
    return peer


def is_proxy(peer: str, proxies: Sequence[str]) -> bool:
    """Whether an address belongs to a trusted proxy network."""
    if not is_ip_address(peer):
        return False
    address = ipaddress.ip_address(peer.strip("[]"))
    return any(address in ipaddress.ip_network(proxy, strict=False) for proxy in proxies)
