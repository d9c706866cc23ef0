"""The plan on the overview leads to its evidence."""

from __future__ import annotations

from tests.e2e.live import Dashboard, Visits, expect

RUN = "pytorch-h200/cnn"


def test_a_change_of_the_plan_leads_to_its_finding_and_to_its_replay(samples: Dashboard, visit: Visits) -> None:
    plan = samples.get("view/plan", run=RUN)["rungs"]["columns"]
    page = visit(samples, "overview", run=RUN)
    rungs = page.locator(".plan ol > li")
    expect(rungs).to_have_count(1 + sum(step is not None for step in plan["step_ns"]))
    expect(rungs.nth(1)).to_contain_text(plan["code"][0])
    rungs.nth(1).get_by_role("button", name="Finding").click()
    finding = page.locator(f"[data-place=findings] [data-key={plan['finding'][0]}]")
    expect(finding).to_have_class("high marked")
    expect(finding).to_be_in_viewport()
    rungs.nth(2).get_by_role("link", name="What-if").click()
    changes = "; ".join(plan["change"][:2])
    expect(page.get_by_role("searchbox", name="Change")).to_have_value(changes)
