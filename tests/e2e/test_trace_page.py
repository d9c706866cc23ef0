"""The timeline, driven as a user drives it: keys, selection, search, links, areas, the address that holds it all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import address, passed, raw_keys

CNN = "pytorch-h200/cnn"
TRANSFORMER = "pytorch-h200/transformer"
EVERY_FRAMEWORK = [
    CNN,
    "pytorch-ddp-cpu",
    "paddle-cpu",
    "megengine-train",
    "megengine-inference/resnet18_w16",
    "onnxruntime-cpu/if_loop",
    "synthetic-4gpu",
]


def canvas(page: Page) -> Locator:
    """The slices, once a window of them stands there."""
    area = page.get_by_role("application")
    expect(area).to_be_visible()
    expect(page.locator(".timeline")).to_have_attribute("data-renderer", re.compile("software|webgl"))
    return area


def window(page: Page) -> tuple[int, int]:
    start, end = address(page)["win"].split("~")
    return int(start), int(end)


def meta(samples: Dashboard, run: str) -> dict[str, Any]:
    return samples.get("timeline/meta", run=run)


def longest(samples: Dashboard, run: str, where: str) -> dict[str, Any]:
    """The longest event of the first operator or kernel."""
    view = "operator" if where == "host" else "kernel"
    name = samples.get(f"view/{view}", run=run)["columns"]["name"][0]
    return samples.get("timeline/longest", run=run, name=name, where=where)


@pytest.mark.parametrize("run", EVERY_FRAMEWORK)
@pytest.mark.parametrize(("language", "theme"), [("en", "light"), pytest.param("zh", "dark", marks=pytest.mark.long)])
def test_every_framework_has_its_timeline(
    samples: Dashboard, visit: Visits, run: str, language: str, theme: str
) -> None:
    page = visit(samples, "trace", run=run, language=language, theme=theme)
    canvas(page)
    busiest = max(meta(samples, run)["tracks"], key=lambda track: track["events"])
    label = busiest["name"].strip() or busiest["process"].strip()
    if language == "zh":  # what the page translates
        label = re.sub(
            r"^(stream|thread)(?= \d+(?!\S))", lambda word: {"stream": "流", "thread": "线程"}[word[0]], label
        )
    expect(page.locator(".timeline")).to_contain_text(label)
    page.wait_for_load_state("networkidle")
    painted = page.evaluate(
        """() => {
          const slices = document.querySelector('.body canvas');
          const copy = Object.assign(document.createElement('canvas'), { width: slices.width, height: slices.height });
          const pen = copy.getContext('2d');
          pen.drawImage(slices, 0, 0);
          const pixels = new Uint32Array(pen.getImageData(0, 0, copy.width, copy.height).data.buffer);
          return new Set(pixels).size;
        }"""
    )
    assert painted > 3, "the slices are not drawn"
    assert not raw_keys(page)


def test_keys_zoom_pan_reset_and_the_address_shows_the_same_again(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=CNN)
    canvas(page).focus()
    whole = meta(samples, CNN)["duration_ns"]
    for _ in range(4):
        page.keyboard.press("w")
    start, end = window(page)
    assert end - start < whole * 0.8
    page.keyboard.press("d")
    moved = window(page)
    assert moved[0] > start
    assert moved[1] - moved[0] == pytest.approx(end - start, abs=2)
    again = visit(samples, at=page.url)
    canvas(again)
    assert window(again) == moved
    page.keyboard.press("0")
    assert address(page).get("win") is None


def test_links_of_the_operator_table_lead_to_the_longest_instance(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=CNN)
    event = longest(samples, CNN, "host")
    row = page.get_by_role("grid", name="Operators", exact=True).locator('[role="row"][aria-rowindex="1"]')
    row.get_by_role("link", name=re.compile("timeline", re.IGNORECASE)).click()
    canvas(page)
    expect(page.locator(".details h2")).to_have_attribute("title", event["name"])
    assert address(page)["sel"] == f"0.{event['event']}"
    start, end = window(page)
    assert start <= event["start_ns"]
    assert end >= event["start_ns"] + event["duration_ns"]
    page.locator(".details").get_by_role("link", name="Operator").click()
    expect(page.get_by_role("grid", name="Operators", exact=True)).to_be_visible()
    assert address(page)["is.name"] == event["name"]


def test_an_address_with_only_an_event_goes_there(samples: Dashboard, visit: Visits) -> None:
    event = longest(samples, CNN, "device")
    page = visit(samples, "trace", run=CNN, sel=f"0.{event['event']}")
    canvas(page)
    expect(page.locator(".details h2")).to_have_attribute("title", event["name"])
    start, end = window(page)
    assert start <= event["start_ns"]
    assert end >= event["start_ns"] + event["duration_ns"]
    assert end - start <= 10 * event["duration_ns"]


def test_brackets_follow_the_launch_of_a_kernel_and_come_back(samples: Dashboard, visit: Visits) -> None:
    event = longest(samples, CNN, "device")
    details = samples.get("timeline/event", run=CNN, event=event["event"])
    launch = next(link for link in details["links"] if link["kind"] == "launch")
    page = visit(samples, "trace", run=CNN, sel=f"0.{event['event']}")
    expect(page.locator(".details h2")).to_have_attribute("title", event["name"])
    canvas(page).focus()
    page.keyboard.press("[")
    expect(page.locator(".details h2")).to_have_attribute("title", launch["name"])
    page.keyboard.press("]")
    expect(page.locator(".details h2")).to_have_attribute("title", event["name"])
    page.keyboard.press("Escape")
    expect(page.locator(".details")).to_have_count(0)


def test_a_click_selects_the_event_under_the_pointer(samples: Dashboard, visit: Visits) -> None:
    event = longest(samples, CNN, "device")
    page = visit(samples, "trace", run=CNN, sel=f"0.{event['event']}")
    expect(page.locator(".details h2")).to_have_attribute("title", event["name"])
    slices = canvas(page)
    slices.focus()
    page.keyboard.press("f")
    window(page)
    page.wait_for_load_state("networkidle")
    box = slices.bounding_box()
    assert box
    # The selected event fills most of the width: somewhere down the middle is its lane.
    page.keyboard.press("Escape")
    expect(page.locator(".details")).to_have_count(0)
    for y in range(6, int(box["height"]), 9):
        slices.click(position={"x": box["width"] / 2, "y": y})
        passed(page)
        if f"sel=0.{event['event']}&" in f"{page.url}&":
            break
    else:
        raise AssertionError("the event is nowhere under the pointer")
    expect(page.locator(".details h2")).to_have_attribute("title", event["name"])


def test_search_counts_all_matches_and_walks_through_them(samples: Dashboard, visit: Visits) -> None:
    hits = samples.get("timeline/search", run=CNN, text="conv")
    events = [event["event"] for event in hits["events"]]
    page = visit(samples, "trace", run=CNN)
    canvas(page).focus()
    page.keyboard.press("/")
    page.keyboard.type("conv")
    tally = page.get_by_role("search").locator(".tally")
    expect(tally).to_contain_text(f"{hits['total']:,}")
    places = []
    for key in ("Enter", "Enter", "Shift+Enter"):
        page.keyboard.press(key)
        places.append(events.index(int(address(page)["sel"].removeprefix("0."))))
        expect(page.locator(".details h2")).to_have_text(hits["events"][places[-1]]["name"])
        expect(tally).to_contain_text(f"{places[-1] + 1:,}")
    first = places[0]
    assert places == [first, first + 1, first]
    assert hits["events"][first]["start_ns"] >= meta(samples, CNN)["duration_ns"] * 0.45, "it starts in the middle"
    assert address(page)["search"] == "conv"


def test_an_area_is_summed_up_by_name(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=CNN)
    slices = canvas(page)
    box = slices.bounding_box()
    assert box
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] - 30, steps=6)
    page.mouse.up()
    page.keyboard.up("Shift")
    start, end, *tracks = address(page)["area"].split("~")
    shown = samples.get(
        "timeline/window",
        run=CNN,
        start_ns=start,
        end_ns=end,
        tracks=",".join(track.partition(".")[2] for track in tracks),
    )
    expect(page.get_by_role("grid").first).to_contain_text(shown["columns"]["name"][0])
    page.locator("body").press("Escape")
    assert "area" not in address(page)


def test_an_area_can_be_selected_with_the_keyboard(samples: Dashboard, visit: Visits) -> None:
    """X selects the time of the slice, else what is in sight."""
    page = visit(samples, "trace", run=CNN, win="1000000~2000000")
    canvas(page)
    page.keyboard.press("x")
    assert address(page)["area"] == "1000000~2000000"
    event = longest(samples, CNN, "host")
    page = visit(samples, "trace", run=CNN, sel=f"0.{event['event']}")
    canvas(page)
    expect(page.locator("aside, .drawer").first).to_contain_text(event["name"])
    page.keyboard.press("x")
    assert address(page)["area"] == f"{event['start_ns']}~{event['start_ns'] + event['duration_ns']}"


def test_markers_stay_in_the_address(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=CNN)
    slices = canvas(page)
    box = slices.bounding_box()
    assert box
    for share in (0.3, 0.6):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + 40)
        page.keyboard.press("m")
    first, second = (int(text) for text in address(page)["marks"].split("~"))
    whole = meta(samples, CNN)["duration_ns"]
    assert (second - first) / whole == pytest.approx(0.3, abs=0.05)


def test_help_names_the_keys(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=CNN)
    canvas(page).focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Enter/Shift+Enter: next/previous match")


def test_all_ranks_are_on_one_page(samples: Dashboard, visit: Visits) -> None:
    run = "synthetic-4gpu"
    page = visit(samples, "trace", run=run, ranks="all")
    canvas(page)
    workers = next(run_row for run_row in samples.get("runs")["runs"] if run_row["id"] == run)["workers"]
    assert len(workers) == 4
    for worker in workers:  # only the names in sight are in the document
        for _ in range(20):
            if worker["name"] in page.locator(".timeline").inner_text():
                break
            page.locator(".timeline .scroller").evaluate("one => one.scrollBy(0, 100)")
            passed(page, 100)
        expect(page.locator(".timeline")).to_contain_text(worker["name"])


@pytest.mark.parametrize(
    ("run", "name", "category", "missing"),
    [
        (CNN, "host_bound", "annotation", "kernel"),
        (CNN, "dataloader_bound", "dataloader", "kernel"),
        ("pytorch-h200/transformer", "many_small_kernels", "runtime", "dataloader"),
    ],
)
def test_a_finding_leads_to_its_evidence(
    samples: Dashboard, visit: Visits, run: str, name: str, category: str, missing: str
) -> None:
    """To the largest gap, the longest copy and so on, which is selected as an area with room beside it."""
    findings = samples.get("view/findings", run=run)["findings"]
    place = [finding["id"] for finding in findings].index(name)
    page = visit(samples, "overview", run=run)
    page.locator(".findings li").nth(place).get_by_role("link", name="timeline").click()
    canvas(page)
    start, end = findings[place]["start_ns"], findings[place]["end_ns"]
    assert address(page)["area"] == f"{start}~{end}"
    low, high = window(page)
    assert low < start < end < high < low + 2 * (end - start)
    track = next(t for t in meta(samples, run)["tracks"] if t["id"] == findings[place]["track"])
    expect(page.locator(".timeline").get_by_text(track["name"].strip()).first).to_be_in_viewport()
    inside = samples.get("timeline/window", run=run, start_ns=start, end_ns=end)["columns"]["category"]
    assert category in inside
    assert missing not in inside


def test_a_gpu_shows_without_scrolling(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=TRANSFORMER)
    canvas(page)
    assert "stream" in page.locator(".heads .head.track").first.inner_text()


def test_a_track_is_dragged_past_its_neighbor(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run="synthetic-4gpu")
    canvas(page)
    names = page.locator(".heads .head.track .name")
    first, second = names.nth(0).inner_text(), names.nth(1).inner_text()
    box, below = names.nth(0).bounding_box(), names.nth(1).bounding_box()
    assert box
    assert below
    page.mouse.move(box["x"] + 20, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 20, below["y"] + 30, steps=8)
    page.mouse.up()
    expect(names.nth(0)).to_have_text(second)
    expect(names.nth(1)).to_have_text(first)
    assert "order" in address(page)


def test_a_search_result_is_visible_and_the_keys_work_again(samples: Dashboard, visit: Visits) -> None:
    """The slice is wide enough to see, above the drawer that opens with it."""
    page = visit(samples, "trace", run=TRANSFORMER)
    canvas(page).focus()
    page.keyboard.press("/")
    page.keyboard.type("nvjet")
    expect(page.get_by_role("search").locator(".tally")).to_contain_text(re.compile(r"\d"))
    page.keyboard.press("Enter")
    expect(page.locator(".details h2")).to_contain_text("nvjet")
    event = samples.get("timeline/event", run=TRANSFORMER, event=int(address(page)["sel"].removeprefix("0.")))
    start, end = window(page)
    assert event["duration_ns"] > (end - start) / 150
    row = page.locator(".heads .head.track", has_text="stream").first.bounding_box()
    drawer = page.locator(".drawer").bounding_box()
    assert row
    assert drawer
    assert row["y"] + 10 < drawer["y"]
    page.keyboard.press("w")
    expect(page).not_to_have_url(re.compile(f"win={start}~{end}"))
    assert address(page)["search"] == "nvjet"


def test_an_area_comes_back_in_front_with_its_place(samples: Dashboard, visit: Visits) -> None:
    event = longest(samples, TRANSFORMER, "host")
    page = visit(
        samples,
        "trace",
        run=TRANSFORMER,
        sel=f"0.{event['event']}",
        win="1~9000000",
        area="10~5000000",
        tab="area",
        y="120",
    )
    canvas(page)
    expect(page.get_by_role("tab", selected=True)).to_have_text("Area")
    expect(page.locator(".timeline .scroller").first).to_have_js_property("scrollTop", 120)
    page.get_by_role("tab", name="Event").click()
    expect(page).not_to_have_url(re.compile("tab="))


def test_the_link_of_another_run_has_its_own_window(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "trace", run=TRANSFORMER, win="1000000~2000000", area="1000000~1500000")
    canvas(page)
    page.evaluate("location.hash = '#/trace?run=synthetic-4gpu'")
    expect(page.locator(".heads .head.track", has_text="stream").first).to_be_visible()
    passed(page, 600)  # longer than the page waits before it writes its window
    assert {"win", "area"} & set(address(page)) == set()
    assert address(page)["run"] == "synthetic-4gpu"
