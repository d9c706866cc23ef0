"""A report opened from the disk, with every request refused: pages, languages, themes, tables, charts and timeline."""

from __future__ import annotations

import gzip
import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import PATIENCE_S, Browser, Dashboard, Page, Visits, expect
from tests.e2e.locators import cell, open_page, settled, table
from tests.e2e.test_hostile_names import IMAGE, SHOWN, trace

Opened = Callable[[Path], Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens a file without a network. The test fails when it asks for anything, or has an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-US", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_S * 1000)
    context.set_offline(True)
    wrong: list[str] = []

    def _open(file: Path) -> Page:
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: None if request.url.startswith(file.as_uri()) else wrong.append(request.url))
        page.goto(file.as_uri())
        return page

    yield _open
    context.close()
    assert [text for text in wrong if "Blocked autofocusing" not in text] == []


def made(source: Path, folder: Path, cache: Path) -> Path:
    file = folder / "report.html"
    assert re.fullmatch(r".*report\.html: [\d,]+ kB\n", printed(cache, "report", source, "-o", file).decode())
    return file


def printed(cache: Path, *command: object) -> bytes:
    """Return what the program prints."""
    environment = {**os.environ, "VISUALPROF_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-m", "visualprof", *map(str, command)], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_two_runs_as_a_page_and_as_pdf(tmp_path: Path, cache: Path, opened: Opened) -> None:
    base, new = (SAMPLES / "pytorch-h200" / name for name in ("transformer.pt.trace.json.gz", "cnn.pt.trace.json.gz"))
    file = tmp_path / "diff.html"
    file.write_bytes(printed(cache, "diff", base, new, "--format", "html"))
    page = opened(file)
    expect(page.get_by_text("From the base to this run")).to_be_visible()
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}#/memory")  # without the names of the two
    expect(table(page, "Memory: changes")).to_be_visible()
    expect(table(page, "Memory: changes")).to_contain_text("Allocated per step")
    pdf = tmp_path / "report.pdf"
    printed(cache, "report", new, "--compare", base, "--format", "pdf", "-o", pdf)
    data = pdf.read_bytes()
    assert data.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", data)) > 1  # what the page shows first is longer than a sheet


def test_from_the_disk(tmp_path: Path, cache: Path, opened: Opened) -> None:
    page = opened(made(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz", tmp_path, cache))
    settled(page)
    assert page.title() == "Overview · cnn"
    expect(page.get_by_text(re.compile(r"^Report of \w+ \d+, \d+$"))).to_be_visible()
    expect(page.get_by_role("navigation", name="Pages")).to_have_text(
        "ProfileOverviewTimelineOperatorsKernelsCall treeAPI callsMemoryWhat-if"
    )
    open_page(page, "Operators")
    operators = table(page, "Operators")
    settled(page)
    expect(cell(operators, 0, "Name")).to_have_text("aten::convolution_backward")
    operators.get_by_role("columnheader", name="Calls").click()
    most = cell(operators, 0, "Calls")
    expect(most).not_to_have_text("28")
    counts = [int(cell(operators, place, "Calls").inner_text().replace(",", "")) for place in range(5)]
    assert counts == sorted(counts, reverse=True)
    page.get_by_role("searchbox", name="Search operators").fill("batch_norm_backward")
    expect(page.locator(".tally").first).to_have_text("1 of 77 rows")
    page.get_by_role("button", name=re.compile("^Step: All")).click()
    page.get_by_role("option").nth(1).click()
    expect(cell(operators, 0, "Calls")).to_have_text("6")  # of 24 in four steps
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("算子")
    page.keyboard.press("t")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.long
def test_its_timeline(tmp_path: Path, cache: Path, opened: Opened) -> None:
    page = opened(made(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz", tmp_path, cache))
    open_page(page, "Timeline")
    expect(page.get_by_text("14.6 ms").first).to_be_visible()  # the longest of the four steps
    ran = table(page, "Area")
    expect(cell(ran, 0, "Name")).to_contain_text("PyTorch Profiler (0)")  # the most self time
    page.wait_for_function(DRAWN)
    open_page(page, "Overview")
    page.get_by_role("link", name="Open Timeline →").first.click()
    expect(table(page, "Area")).to_be_visible()
    page.keyboard.press("0")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(DRAWN)


# At least so many colors: spans of some categories, and names on them.
DRAWN = """() => [...document.querySelectorAll("canvas")].some((canvas) => {
  const context = canvas.getContext("2d");
  if (!context || canvas.height < 200) return false;
  const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size > 8;
})"""


@pytest.mark.long
def test_of_hostile_names(tmp_path: Path, cache: Path, opened: Opened) -> None:
    folder = tmp_path / IMAGE
    folder.mkdir()
    (folder / "trace.json").write_text(trace())
    page = opened(made(folder, tmp_path, cache))
    settled(page)
    open_page(page, "Operators")
    operators = table(page, "Operators")
    for number, text in enumerate(SHOWN):
        expect(cell(operators, number, "Name")).to_have_attribute("title", text)
    open_page(page, "Timeline")
    expect(table(page, "Area")).to_be_visible()
    assert page.evaluate("window.owned") is None
    assert page.locator("img, iframe").count() == 0


@pytest.mark.long
def test_in_a_frame_without_an_origin(tmp_path: Path, cache: Path, opened: Opened) -> None:
    """As a notebook shows it."""
    report = made(SAMPLES / "paddle-cpu", tmp_path, cache).read_text()
    notebook = tmp_path / "notebook.html"
    frame = f'<iframe sandbox="allow-scripts allow-downloads" width="1200" height="800" srcdoc="{html.escape(report)}">'
    notebook.write_text(f"<!doctype html><meta charset=utf-8>{frame}</iframe>")
    shown = opened(notebook).frame_locator("iframe")
    expect(shown.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    open_page(shown, "Operators")
    expect(shown.get_by_role("heading", level=1, name="Operators")).to_be_visible()
    shown.get_by_role("button", name="中文").click()
    expect(shown.get_by_role("heading", level=1)).to_have_text("算子")


def test_the_button(tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits, opened: Opened) -> None:
    shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / "paddle-cpu")
    dashboard = serve(tmp_path / "runs", "--private")
    page = visit(dashboard, "overview")
    settled(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Report", exact=True).click()
        page.get_by_role("button", name="HTML").click()
    assert download.value.suggested_filename == "paddle-cpu.html"
    file = tmp_path / "saved.html"
    download.value.save_as(file)
    settled(opened(file))


def test_the_button_takes_the_base_along(
    tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits, opened: Opened
) -> None:
    for name in ("before", "after"):
        shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / name)
    later = next((tmp_path / "runs" / "after").iterdir())
    later.write_bytes(gzip.compress(gzip.decompress(later.read_bytes()) + b" "))  # not the same file
    dashboard = serve(tmp_path / "runs")
    dashboard.wait_until_ready()
    page = visit(dashboard, "overview", run="after", base="before")
    expect(page.get_by_text("Base step").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Report", exact=True).click()
        page.get_by_role("button", name="HTML").click()
    file = tmp_path / "saved.html"
    download.value.save_as(file)
    expect(opened(file).get_by_text("Base step").first).to_be_visible()


def test_the_button_saves_the_sentences_of_the_overview_as_markdown(
    tmp_path: Path, samples: Dashboard, visit: Visits
) -> None:
    page = visit(samples, "memory", run="pytorch-h200/transformer")
    with page.expect_download() as download:
        page.get_by_role("button", name="Report", exact=True).click()
        page.get_by_role("button", name="Markdown").click()
    assert download.value.suggested_filename == "pytorch-h200_transformer.md"
    file = tmp_path / "saved.md"
    download.value.save_as(file)
    text = file.read_text()
    page = visit(samples, "overview", run="pytorch-h200/transformer")
    title = page.locator(".findings li strong").first.inner_text()
    assert f"**{title}**" in text
    assert "## Operators" in text
    assert "| --- |" in text


def test_the_button_prints_the_overview(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "memory", run="pytorch-h200/transformer")
    page.evaluate("() => { window.print = () => { window.printed = location.hash; }; }")
    page.get_by_role("button", name="Report", exact=True).click()
    page.get_by_role("button", name="PDF").click()
    page.wait_for_function("() => window.printed !== undefined")
    assert page.evaluate("window.printed").startswith("#/overview")
