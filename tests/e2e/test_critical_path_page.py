"""The critical path on the timeline: drawn, led to from the Bottlenecks page, and an event's slack."""

from __future__ import annotations

import re

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import address

RUN = "pytorch-h200/transformer"


def test_the_path_is_drawn_and_an_event_shows_its_slack(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "idle", run=RUN)
    with page.expect_response(lambda response: "timeline/path" in response.url):
        page.get_by_role("link", name="On the timeline →").click()
    expect(page).to_have_url(re.compile("path=on.*area=|area=.*path=on"))
    button = page.get_by_role("button", name="Critical path")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("canvas.overlay")).to_be_visible()
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert "path" not in address(page)

    kernels = samples.get("view/critical", run=RUN, table="slack", sort="slack_ns", order="asc", limit=1)["columns"]
    longest = samples.get("timeline/longest", run=RUN, name=kernels["name"][0])
    event = samples.get("timeline/event", run=RUN, event=longest["event"])
    assert event["slack_ns"] >= kernels["slack_ns"][0]
    page = visit(samples, "trace", run=RUN, sel=f"0.{longest['event']}")
    expect(page.locator(".details")).to_contain_text("Slack")
