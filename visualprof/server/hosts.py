"""Names and addresses of machines, as they stand in URLs and headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence


def is_ip_address(host: str) -> bool:
    """Is it an IP address, in brackets or not, rather than a name?"""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Is it the loopback, by name or by address?"""
    return host == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def original_client(peer: str, forwarded: Sequence[str], proxies: Sequence[str]) -> str:
    """Who sent a request: the nearest address that is no proxy of ours.

    Args:
        peer: who is connected.
        forwarded: headers in which proxies say for whom they ask; from anybody else they are no more than a claim.
        proxies: networks of our proxies, such as 10.0.0.0/8.
    """
    chain = [part.strip() for header in forwarded for part in header.split(",") if header]
    while chain and is_proxy(peer, proxies):
        peer = chain.pop()
    return peer


def is_proxy(peer: str, proxies: Sequence[str]) -> bool:
    """Is it one of ours? proxies: their networks."""
    if not is_ip_address(peer):
        return False
    address = ipaddress.ip_address(peer.strip("[]"))
    return any(address in ipaddress.ip_network(proxy, strict=False) for proxy in proxies)
