"""The steps of an inference server on the page Overview: phases apart, the steady state, and its ends to choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.live import Visits, expect
from tests.e2e.locators import address, cell, raw_keys, table
from tests.e2e.test_changes import Serve
from tests.views.test_serving import planned

SAID = {
    "en": ("Average decode step", "Phases", "Phase", "Mixed", "Steady state: steps 4 to 7 (4 of 8)"),
    "zh": ("平均解码步", "阶段", "阶段", "混合", "稳态：第 4 步至第 7 步（共 8 步中的 4 步）"),
}


@pytest.mark.parametrize("language", SAID)
def test_phases_of_a_server_stand_apart(serve: Serve, visit: Visits, tmp_path: Path, language: str) -> None:
    folder = tmp_path / "runs" / "server"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": planned()}))
    dashboard = serve()
    dashboard.wait_until_ready()
    average, phases, phase, mixed, steady = SAID[language]
    page = visit(dashboard, "overview", language=language, run="server/server")
    expect(page.get_by_role("heading", name=average)).to_be_visible()
    expect(page.get_by_text(steady)).to_be_visible()
    rows = table(page, phases)
    expect(cell(rows, 1, phase)).to_have_text(mixed)
    page.get_by_role("radio", name="All steps" if language == "en" else "全部步").click()
    expect(cell(rows, 0, "Steps" if language == "en" else "步数")).to_have_text("3")
    assert address(page)["serving_window"] == "all"
    assert raw_keys(page) == []
