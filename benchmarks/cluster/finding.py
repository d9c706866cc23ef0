"""The slow ranks, hosts and links that a view names, in the words of the truth."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from benchmarks.cluster.faults import LINKS

# What the page may call a cause.
CAUSES = {
    "straggler": {"device"},
    "node": {"device"},
    "host": {"host", "input"},
    "loader": {"input"},
    "work": {"work"},
    "stage": {"work"},
    "link": {"link"},
    "nic": {"link"},
}


class Finding(NamedTuple):
    """Ranks that a view names, alone or as a host, a stage and so on; of a link its hosts. cause: "" none is told."""

    unit: str
    ranks: tuple[int, ...]
    hosts: tuple[int, ...]
    cause: str

    def fits(self, fault: dict[str, Any]) -> bool:
        """Does it name what a fault slows down, and nothing else? Of a link it may be a process group that has it."""
        if fault["kind"] not in LINKS:
            return self.cause != "link" and bool(self.ranks) and set(self.ranks) <= set(fault["ranks"])
        if self.cause not in ("link", ""):
            return False
        hosts, injected = set(self.hosts), set(fault["hosts"])
        return injected <= hosts if self.unit == "group" or fault["kind"] == "nic" else bool(hosts & injected)

    def exact(self, fault: dict[str, Any]) -> bool:
        """Does it name all of that, by its cause?"""
        members, whole = (self.hosts, fault["hosts"]) if fault["kind"] in LINKS else (self.ranks, fault["ranks"])
        return self.fits(fault) and set(members) == set(whole) and self.cause in CAUSES[fault["kind"]]

    def __str__(self) -> str:
        return f"{self.unit}: {f'hosts {self.hosts}' if self.cause == 'link' else f'ranks {self.ranks}'} {self.cause}"


def findings(answer: Any) -> list[Finding]:
    """The findings of the Distributed page."""
    return [
        Finding(
            straggler.unit,
            tuple(straggler.ranks),
            tuple(int(re.sub(r"\D", "", host)) for host in straggler.hosts),
            straggler.cause,
        )
        for straggler in answer.stragglers
    ]
