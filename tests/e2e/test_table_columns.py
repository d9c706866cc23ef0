"""Tables as a user arranges them: columns, the order of rows, copied cells and expanded rows."""

from __future__ import annotations

import re

from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import address, cell, row, table

CNN = "pytorch-h200/cnn"


def headings(within: Locator) -> list[str]:
    return [str(heading.get_attribute("aria-label")) for heading in within.get_by_role("columnheader").all()]


def expect_headings(within: Locator, *names: str) -> None:
    for number, name in enumerate(names):
        expect(within.get_by_role("columnheader").nth(number)).to_have_attribute("aria-label", name)


def heading(within: Locator, name: str) -> Locator:
    return within.get_by_role("columnheader", name=name, exact=True)


def width(within: Locator, name: str) -> float:
    box = heading(within, name).bounding_box()
    assert box
    return box["width"]


def copied(within: Locator) -> str:
    return within.evaluate(
        """table => { const data = new DataTransfer();
        table.dispatchEvent(new ClipboardEvent("copy", { clipboardData: data, bubbles: true, cancelable: true }));
        return data.getData("text/plain"); }"""
    )


def opened(samples: Dashboard, visit: Visits) -> tuple[Page, Locator]:
    page = visit(samples, "operator", run=CNN)
    operators = table(page, "Operators")
    expect(operators.locator(".slot").first).to_be_visible()
    return page, operators


def test_a_column_is_resized_by_dragging_and_with_keys_until_it_is_reset(samples: Dashboard, visit: Visits) -> None:
    page, operators = opened(samples, visit)
    before = width(operators, "Calls")
    box = heading(operators, "Calls").locator(".handle").bounding_box()
    assert box
    page.mouse.move(box["x"] + 3, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 63, box["y"] + 10, steps=4)
    page.mouse.up()
    assert abs(width(operators, "Calls") - before - 60) <= 2
    heading(operators, "Calls").get_by_role("button").first.focus()
    page.keyboard.press("Shift+ArrowLeft")
    assert abs(width(operators, "Calls") - before - 44) <= 2
    expect(page.get_by_role("status").filter(has_text=re.compile(r"^Calls: \d+ pixels wide$"))).to_have_count(1)
    page.reload()
    assert abs(width(table(page, "Operators"), "Calls") - before - 44) <= 2
    page.get_by_role("button", name="Choose columns").first.click()
    page.get_by_role("button", name="Reset columns").click()
    assert abs(width(table(page, "Operators"), "Calls") - before) <= 2


def test_a_column_is_moved_by_dragging_with_keys_and_in_the_menu(samples: Dashboard, visit: Visits) -> None:
    page, operators = opened(samples, visit)
    first, second, third = headings(operators)[:3]
    heading(operators, third).get_by_role("button").first.focus()
    page.keyboard.press("Control+Shift+ArrowLeft")
    expect_headings(operators, first, third, second)
    heading(operators, second).locator(".sorter").drag_to(heading(operators, third).locator(".sorter"))
    expect_headings(operators, first, second, third)
    page.get_by_role("button", name="Choose columns").first.click()
    while headings(operators)[0] != second:  # hidden columns are in the list as well
        page.get_by_role("button", name=f"Move {second} to the left").click()
    expect_headings(operators, second, first, third)
    page.reload()
    operators = table(page, "Operators")
    expect_headings(operators, second, first, third)
    expect(row(operators, 0).get_by_role("link").first).to_be_visible()  # the first column has the links


def test_rows_are_sorted_by_several_columns(samples: Dashboard, visit: Visits) -> None:
    page, operators = opened(samples, visit)
    heading(operators, "Calls").locator(".sorter").click()
    heading(operators, "Name").locator(".sorter").click(modifiers=["Shift"])
    found = address(page)
    assert (found["sort"], found["order"]) == ("calls,name", "desc,asc")
    expect(heading(operators, "Calls")).to_have_attribute("aria-sort", "descending")
    expect(heading(operators, "Name").locator(".sorter")).to_have_attribute("aria-description", "sort key 2, ascending")
    answer = samples.get("view/operator", run=CNN, sort="calls,name", order="desc,asc")
    for number in range(6):
        expect(cell(operators, number, "Name")).to_have_text(answer["columns"]["name"][number])
    heading(operators, "Name").locator(".sorter").focus()
    page.keyboard.press("Shift+Enter")
    assert address(page)["sort"] == "calls,name"
    assert "order" not in address(page)  # both descending


def test_cells_are_selected_with_the_mouse_and_with_keys_and_copied(samples: Dashboard, visit: Visits) -> None:
    _, operators = opened(samples, visit)
    columns = samples.get("view/operator", run=CNN)["columns"]
    cell(operators, 1, "Name").click()
    assert copied(operators) == columns["name"][1]
    cell(operators, 2, "Calls").click(modifiers=["Shift"])
    expected = [f"{columns['name'][number]}\t{columns['calls'][number]}" for number in (1, 2)]
    assert copied(operators).splitlines() == expected
    expect(operators.locator("[aria-selected=true]")).to_have_count(4)
    operators.press("Shift+ArrowUp")
    assert copied(operators).splitlines() == expected[:1]
    operators.press("Escape")
    expect(operators.locator("[aria-selected=true]")).to_have_count(0)


def test_expanded_rows_survive_another_order_a_reload_and_going_back(samples: Dashboard, visit: Visits) -> None:
    page, operators = opened(samples, visit)
    name = cell(operators, 1, "Name").inner_text()
    row(operators, 1).get_by_role("button", name="Show details").click()
    expect(operators.locator(".expanded")).to_have_count(1)

    def expanded_name() -> str:
        slot = page.locator(".slot", has=page.locator(".expanded")).first
        return slot.get_by_role("gridcell").first.inner_text()

    heading(operators, "Name").locator(".sorter").click()
    heading(operators, "Name").locator(".sorter").click()
    heading(operators, "Device self").locator(".sorter").click()
    expect(operators.locator(".expanded")).to_have_count(1)
    assert expanded_name() == name
    page.reload()
    expect(page.locator(".expanded")).to_have_count(1)
    page.goto(f"{samples.url}#/memory?run={CNN}")
    expect(page.locator("main")).to_contain_text("Memory")
    page.go_back()
    expect(page.locator(".expanded")).to_have_count(1)
    assert expanded_name() == name


def test_the_scroll_position_of_a_table_survives_going_back(samples: Dashboard, visit: Visits) -> None:
    page, operators = opened(samples, visit)
    operators.evaluate("table => table.scrollTo({ top: 27 * 12 })")
    page.wait_for_function("() => history.state?.visualprof?.['table.'] > 5")
    page.goto(f"{samples.url}#/memory?run={CNN}")
    expect(page.locator("main")).to_contain_text("Memory")
    page.go_back()
    expect(table(page, "Operators").locator(".slot").first).to_be_visible()
    page.wait_for_function("() => document.querySelector('main [role=grid]').scrollTop > 27 * 8")
