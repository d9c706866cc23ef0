"""Names and addresses of machines, as they stand in URLs and headers."""

from __future__ import annotations

import ipaddress


def is_address(host: str) -> bool:
    """Is it an IP address, in brackets or not, rather than a name?"""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_this_machine(host: str) -> bool:
    """Is it the loopback, by name or by address?"""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)
