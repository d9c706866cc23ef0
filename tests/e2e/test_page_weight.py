"""How much the first look costs: it must not grow unseen."""

from __future__ import annotations

from typing import Any

from tests.e2e.live import Dashboard, Visits
from tests.e2e.locators import settled

MOST_REQUESTS = 25
MOST_BYTES = 270 * 1024


def test_the_first_page_asks_little_of_a_cold_browser(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, at=f"{samples.url}api/v1/status")  # of the same origin, without a file of the page
    requests: list[Any] = []
    page.on("requestfinished", lambda request: requests.append(request))
    page.goto(f"{samples.url}#/overview?run=pytorch-h200%2Fcnn")
    settled(page)
    page.wait_for_load_state("networkidle")
    sizes = {
        request.url: sum(request.sizes()[part] for part in ("responseBodySize", "responseHeadersSize"))
        for request in requests
    }
    assert len(requests) <= MOST_REQUESTS, sizes
    assert sum(sizes.values()) <= MOST_BYTES, sizes
