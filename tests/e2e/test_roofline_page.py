"""The roofline on the page Operator and the sequences on the page Kernel."""

from __future__ import annotations

from tests.e2e import expected_text
from tests.e2e.live import Dashboard, Visits, expect
from tests.e2e.locators import address, cell, raw_keys, row, table

RUN = "pytorch-h200/transformer"


def test_the_roofline_shows_what_limits_an_operator(samples: Dashboard, visit: Visits) -> None:
    answer = samples.get("view/roofline", run=RUN, worker="transformer")
    place = answer["columns"]["bound"].index("latency")
    page = visit(samples, "operator", language="zh", run=RUN)
    rows = table(page, "算子及其瓶颈")
    expect(cell(rows, place, "瓶颈")).to_have_text("延迟")
    panel = page.locator("[data-place=operator_roofline]")
    expect(panel).to_contain_text(expected_text.ratio(answer["mfu"]))
    expect(panel).to_contain_text("NVIDIA H200")
    row(rows, place).click()
    assert address(page)["point"].startswith(answer["columns"]["name"][place])
    assert raw_keys(page) == []


def test_sequences_below_a_module(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "kernel", run=RUN)
    sequences = table(page, "Kernel sequences")
    expect(sequences).to_contain_text("autograd::engine")
    page.get_by_placeholder("Operator or module").fill("Linear")
    expect(cell(sequences, 0, "Operator or stream")).to_contain_text("nn.Module: Linear")
    assert address(page)["below"] == "Linear"
    page.get_by_role("radio", name="By stream").click()
    expect(cell(sequences, 0, "Operator or stream")).to_contain_text("stream")
    assert address(page)["by"] == "stream"
