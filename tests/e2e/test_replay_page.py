"""One call of an operator on the page Operator: its script, and the way to a job."""

from __future__ import annotations

from typing import Any

from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import raw_keys

RUN = "pytorch-h200/transformer"


def test_a_call_of_an_operator_has_a_script_and_a_job(samples: Dashboard, visit: Visits) -> None:
    only: dict[str, Any] = {"is.name": "aten::addmm"}
    page = visit(samples, "operator", run=RUN, **only)
    operators = page.locator("[data-place=operator]")
    operators.locator("button.expander").first.click()
    expect(operators.get_by_role("heading", name="Reproduce by input shape")).to_be_visible()
    expect(operators.get_by_role("link", name="Script", exact=True)).to_have_count(3)
    with page.expect_download() as download:
        operators.get_by_role("link", name="Script", exact=True).first.click()
    assert download.value.suggested_filename == "aten_addmm.py"
    assert raw_keys(page) == []
    operators.get_by_role("link", name="Measure on a machine").first.click()
    expect(page.get_by_text("aten_addmm.operator").first).to_be_visible()
