"""From an operator to its kernels and to the own line of code, and back, in one gesture each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.live import Page, Visits, expect
from tests.e2e.locators import cell, open_page, row, settled, table
from tests.e2e.test_changes import Serve
from tests.reader.test_kineto import call, kernel, op

FULL = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_align4>(int)"
SHORT = "cutlass gemm tf32 128x256x32 nt"
STACK = "torch/nn/linear.py(9): forward;torch/nn/module.py(1): call;/work/net/train.py(7): step;main.py(3): <module>"


@pytest.fixture
def page(serve: Serve, visit: Visits, tmp_path: Path) -> Page:
    events = [
        op("aten::mm", 0, 50, **{"Call stack": STACK}),
        call(10, 1),
        kernel(100, 1, dur=75, name=FULL),
        op("aten::add", 60, 50),
        call(70, 2),
        kernel(200, 2, dur=25, name="add"),
    ]
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return visit(serve(folder), "operator")


def test_an_operator_opens_its_kernels_and_its_line_of_code(page: Page) -> None:
    operators = table(page, "Operators")
    expect(cell(operators, 0, "Share")).to_have_text("75.0 %")
    row(operators, 0).get_by_role("button", name="details").click()
    kernels = page.locator("[data-place=operator_kernels]")
    expect(kernels.get_by_role("link", name=SHORT)).to_have_attribute("title", FULL)
    expect(kernels).to_contain_text("75.0 µs")
    line = page.locator(".source-line")
    expect(line).to_contain_text("/work/net/train.py:7")
    expect(line.get_by_role("link", name="Open in editor")).to_have_attribute(
        "href", "vscode://file/work/net/train.py:7"
    )
    frames = page.locator(".frames li")
    expect(frames).to_have_text(["2 library frames", "/work/net/train.py(7): step", "main.py(3): <module>"])
    frames.first.get_by_role("button").click()
    expect(frames).to_have_count(4)
    kernels.get_by_role("link", name=SHORT).click()
    expect(cell(table(page, "Kernels"), 0, "Name")).to_have_text(SHORT)


def test_a_kernel_opens_its_full_name_its_operator_and_its_line_of_code(page: Page) -> None:
    open_page(page, "Kernels")
    kernels = table(page, "Kernels")
    settled(page)
    row(kernels, 0).get_by_role("button", name="details").click()
    expect(page.locator(".full-name code")).to_have_text(FULL)
    source = page.locator("[data-place=kernel_source]")
    expect(source.get_by_role("link", name="aten::mm")).to_be_visible()
    expect(source.locator(".source-line")).to_contain_text("/work/net/train.py:7")


def test_the_editor_and_the_source_root_are_remembered(page: Page) -> None:
    row(table(page, "Operators"), 0).get_by_role("button", name="details").click()
    line = page.locator(".source-line")
    line.get_by_role("button", name="Editor").click()
    for label, text in (
        ("Link pattern", "idea://open?file=/{file}&line={line}"),
        ("Recorded path starts with", "/work"),
        ("Local source root", "/home/me"),
    ):
        line.get_by_label(label).fill(text)
        line.get_by_label(label).press("Tab")
    link = line.get_by_role("link", name="Open in editor")
    expect(link).to_have_attribute("href", "idea://open?file=/home/me/net/train.py&line=7")
    page.reload()  # the row stays expanded
    expect(link).to_have_attribute("href", "idea://open?file=/home/me/net/train.py&line=7")
