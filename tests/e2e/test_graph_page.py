"""The graph page, driven as a user drives it: folding, search, details, measured time, comparison, upload, export."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.conftest import SAMPLES
from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import address, raw_keys

STATIC_RUN = "megengine-inference/resnet18_w16"
STATIC = "megengine-inference/resnet18_w16.profile.json.gz"
MGE = "megengine-train/lenet.mge"
ONNX = "onnxruntime-cpu/subgraphs_if_loop.onnx"


def picture(page: Page) -> Locator:
    """The picture, once it is laid out."""
    area = page.locator(".area").first
    expect(area).to_have_attribute("data-ready", "true")
    return area


def boxes(page: Page) -> int:
    """Nodes and groups in sight of the picture."""
    return int(picture(page).get_attribute("data-boxes") or 0)


def graph(samples: Dashboard, model: str) -> dict[str, Any]:
    return samples.get("graph", model=model)


@pytest.mark.parametrize("model", [STATIC, MGE, ONNX])
@pytest.mark.parametrize(("language", "theme"), [("en", "light"), pytest.param("zh", "dark", marks=pytest.mark.long)])
def test_every_model_of_the_samples_has_its_picture(
    samples: Dashboard, visit: Visits, model: str, language: str, theme: str
) -> None:
    page = visit(samples, "graph", model=model, language=language, theme=theme)
    assert boxes(page) > 2
    model_answer = graph(samples, model)["model"]
    expect(page.locator("aside")).to_contain_text(f"{model_answer['parameters']:,}")
    assert not raw_keys(page)


def test_unfolding_shows_every_operator_and_the_address_keeps_it(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model=STATIC)
    folded = boxes(page)
    page.get_by_role("button", name="Expand all").click()
    nodes, groups = (len(graph(samples, STATIC)[kind]["name"]) for kind in ("nodes", "groups"))
    expect(page.locator(".area").first).not_to_have_attribute("data-boxes", str(folded))
    whole = boxes(page)
    assert whole <= nodes + groups - 1
    assert whole >= nodes * 0.9
    address(page)
    assert boxes(visit(samples, at=page.url)) == whole
    page.get_by_role("button", name="Collapse all").click()
    expect(page.locator(".area").first).to_have_attribute("data-boxes", str(folded))


def test_search_jumps_to_a_node_and_shows_its_details(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model=STATIC)
    picture(page)
    page.keyboard.press("/")
    page.keyboard.type("layer3.1.conv2")
    page.keyboard.press("Enter")
    expect(page.locator("aside")).to_contain_text("Convolution")
    expect(page.locator("aside")).to_contain_text("layer3")
    assert "node" in address(page) or "sel" in address(page)


def test_measured_time_is_shown_on_the_model_of_the_run(samples: Dashboard, visit: Visits) -> None:
    measured = samples.get("graph/profile", model=STATIC, run=STATIC_RUN)
    assert measured["matched_nodes"] > 0
    page = visit(samples, "graph", run=STATIC_RUN)
    picture(page)
    expect(page.locator("aside")).to_contain_text(f"{measured['matched_ratio'] * 100:.1f} %")
    expect(page.locator("aside")).to_contain_text("3.50 ms")  # layer1: sum of its nodes


def test_an_address_without_a_run_takes_that_of_the_model(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model=STATIC)
    expect(page).to_have_url(re.compile("[?&]run=" + STATIC_RUN.replace("/", "(/|%2F)") + "(&|$)"))
    expect(page.locator("aside")).to_contain_text("3.50 ms")  # measured in that run


def test_a_profile_of_another_model_gives_a_message(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model=MGE, run="pytorch-h200/cnn")
    picture(page)
    expect(page.get_by_text("so the run probably executed another model")).to_be_visible()


def test_two_models_side_by_side(samples: Dashboard, visit: Visits) -> None:
    other = "megengine-inference/transformer_tiny.profile.json.gz"
    compared = samples.get("graph/compare", model=STATIC, other=other)
    page = visit(samples, "graph", model=STATIC)
    picture(page)
    page.get_by_role("button", name=re.compile("^Second model")).click()
    page.get_by_role("option", name=re.compile("transformer_tiny")).click()
    expect(page.locator(".area")).to_have_count(2)
    expect(page.locator(".area").nth(1)).to_have_attribute("data-ready", "true")
    removed = compared["differences"]["removed"]
    assert removed == compared["status"].count("removed") > 0
    expect(page.locator(".legend")).to_contain_text(f"Removed {removed}")


def test_models_are_uploaded_and_other_files_are_rejected(samples: Dashboard, visit: Visits, tmp_path: Path) -> None:
    page = visit(samples, "graph", model=MGE)
    picture(page)
    copy = tmp_path / "mine.onnx"
    copy.write_bytes((SAMPLES / ONNX).read_bytes())
    page.locator("input[type=file]").set_input_files(copy)
    expect(page.get_by_role("button", name=re.compile("^Model"))).to_contain_text("mine.onnx")
    picture(page)
    bomb = tmp_path / "bomb.pt"
    bomb.write_bytes(b"\x80\x04cos\nsystem\n")
    visit.tolerate("422")
    page.locator("input[type=file]").set_input_files(bomb)
    expect(page.get_by_role("alert")).to_contain_text("a Python pickle")


def test_the_picture_can_be_saved_as_svg(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model=MGE)
    picture(page)
    page.get_by_role("button", name="Save image").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("SVG")).click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "Convolution" in text


def test_an_unknown_model_is_reported(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model="gone.onnx", run=STATIC_RUN)
    expect(page.locator(".missing")).to_contain_text("gone.onnx")
    page.locator(".missing").get_by_role("button").click()
    picture(page)


def test_search_finds_attributes(samples: Dashboard, visit: Visits) -> None:
    attributes = graph(samples, MGE)["nodes"]["attributes"]
    named = next(text for text in attributes if "=" in text)
    page = visit(samples, "graph", model=MGE, search=named.partition(" ")[0])
    picture(page)
    count = sum(named.partition(" ")[0].lower() in text.lower() for text in attributes)
    expect(page.get_by_role("search")).to_contain_text(re.compile(rf"\b{count}\b"))


def test_a_row_of_the_operator_table_leads_to_its_node(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "operator", run=STATIC_RUN)
    row = page.get_by_role("grid", name="Operators", exact=True).locator('[role="row"][aria-rowindex="1"]')
    row.get_by_role("link", name="Show in the graph").click()
    picture(page)
    name = samples.get("view/operator", run=STATIC_RUN)["columns"]["name"][0]
    kind = next(
        kind
        for full, kind in zip(*(graph(samples, STATIC)["nodes"][key] for key in ("full_name", "type")), strict=True)
        if full == name
    )
    expect(page.locator("aside")).to_contain_text(kind)


def prepared(folder: Path, **names: list[str]) -> Path:
    """A run of the sample with an If and a Loop in `run`, and models in `models`, the last the newest."""
    (folder / "run").mkdir(parents=True)
    shutil.copy(SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz", folder / "run" / "trace.json.gz")
    for age, (name, nodes) in enumerate(names.items()):
        whole = folder / "models" / f"{name}.onnx"
        if nodes:
            models.save(models.chain(nodes), whole)
        else:
            whole.parent.mkdir(exist_ok=True)
            shutil.copy(SAMPLES / ONNX, whole)
        os.utime(whole, (1.7e9 + age, 1.7e9 + age))
    return folder


def test_a_run_shows_the_model_whose_names_it_measured(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    dashboard = serve(prepared(tmp_path / "logs", own=[], newest=["conv"]))
    dashboard.wait_until_ready()
    (match, other) = dashboard.get("models/match", run="run")["matches"]
    assert (match["model"], other["matched_ratio"]) == ("models/own.onnx", 0)
    page = visit(dashboard, "graph")
    picture(page)
    chooser = page.locator(".tools .picker-button").first
    expect(chooser).to_contain_text("own.onnx")
    expect(page.locator("aside")).to_contain_text(f"{match['matched_ratio'] * 100:.1f}".removesuffix(".0") + " %")
    expect(page.locator(".fit")).to_have_count(0)
    chooser.click()
    expect(page.get_by_role("option").first).to_contain_text("of the run's time")
    assert not raw_keys(page)


def test_models_that_fit_alike_can_be_chosen(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    dashboard = serve(prepared(tmp_path / "logs", first=[], second=[], newest=["conv"]))
    dashboard.wait_until_ready()
    page = visit(dashboard, "graph")
    picture(page)
    expect(page.locator(".fit")).to_contain_text("These models fit about equally well")
    page.locator(".fit").get_by_role("button", name=re.compile("first")).click()
    expect(page.locator(".tools .picker-button").first).to_contain_text("first.onnx")
    expect(page.locator(".fit")).to_have_count(0)
    assert address(page)["model"] == "models/first.onnx"


def test_without_a_matching_model_the_user_chooses(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    dashboard = serve(prepared(tmp_path / "logs", old=["relu"], newest=["conv"]))
    dashboard.wait_until_ready()
    page = visit(dashboard, "graph", language="zh")
    choice = page.locator(".choice")
    expect(choice.locator("tbody tr")).to_have_count(2)
    expect(choice.locator("tbody tr").first).to_contain_text("0 %")
    assert not raw_keys(page)
    choice.get_by_role("button", name="models/old.onnx").click()
    picture(page)
    assert address(page)["model"] == "models/old.onnx"


def test_a_directory_of_models_alone_leads_to_the_graph_page(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    models.save(models.chain(["a"]), folder / "a.onnx")
    shutil.copy(Path("tests/fixtures/graphs/torch_cnn.graph.json"), folder)
    dashboard = serve(folder)
    while len(dashboard.get("models")["models"]) < 2:
        pass
    dashboard.read_models()
    assert dashboard.get("runs")["skipped"] == []
    page = visit(dashboard)
    picture(page)
    assert "#/graph" in page.url
    page = visit(dashboard, "overview", language="zh")
    page.locator(".empty .models").get_by_role("link").click()
    picture(page)
    assert not raw_keys(page)


def test_a_slow_model_is_shown_as_being_read(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    models.save(models.calling(4, 17), tmp_path / "logs" / "long.onnx")  # 88,741 nodes: seconds
    models.save(models.chain(["a"]), tmp_path / "logs" / "short.onnx")
    dashboard = serve(tmp_path / "logs")
    while len(dashboard.get("models")["models"]) < 2:
        pass
    page = visit(dashboard, "graph", model="long.onnx")
    expect(page.locator(".reading")).to_contain_text("Reading long.onnx")
    page = visit(dashboard, "graph", model="short.onnx")
    picture(page)


def test_a_slow_model_replaces_the_previous_picture(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "graph", model=ONNX, run="onnxruntime-cpu/if_loop")
    picture(page)
    held: list[Any] = []
    page.route("**/api/v1/graph?*", lambda route: held.append(route))
    page.get_by_role("button", name=re.compile("^Model:")).click()
    page.get_by_role("option", name="resnet10").click()
    expect(page.locator(".reading")).to_contain_text("Reading resnet10.onnx")
    expect(page.locator(".area")).to_have_attribute("data-boxes", "0")
    held[0].continue_()
    picture(page)
    assert boxes(page) > 0


def test_a_loop_is_one_node_with_its_time_and_links_to_its_row(samples: Dashboard, visit: Visits) -> None:
    graph_answer = graph(samples, ONNX)
    loop = graph_answer["nodes"]["type"].index("Loop")
    group = graph_answer["groups"]["node"].index(loop)
    measured = samples.get("graph/profile", model=ONNX, run="onnxruntime-cpu/if_loop")["columns"]
    page = visit(samples, "graph", model=ONNX, run="onnxruntime-cpu/if_loop", sel=f"n{loop}")
    picture(page)
    panel = page.locator("aside")
    expect(panel).to_contain_text("Documentation of Loop")
    expect(panel.locator("dl").last).to_contain_text(str(graph_answer["groups"]["operators"][group]))
    panel.get_by_role("link", name="Show in the operator table").click()
    name = measured["operator"][loop]
    expect(page.get_by_role("grid", name="Operators", exact=True)).to_contain_text(name)


def test_with_a_base_the_picture_shows_the_changes(samples: Dashboard, visit: Visits) -> None:
    model, new, base = "models/resnet10.onnx", "resnet10-sample/ov-f32-2t", "resnet10-sample/ov-bf16-2t"
    own_profile, far = (samples.get("graph/profile", model=model, run=run)["columns"] for run in (new, base))
    node = next(i for i, time in enumerate(own_profile["time_ns"]) if time)
    assert (own_profile["time_ns"][node], far["time_ns"][node]) == (959_000, 1_299_000)
    assert own_profile["calls"][node] == far["calls"][node]
    page = visit(samples, "graph", model=model, run=new, base=base, sel=f"n{node}")
    picture(page)
    expect(page.locator(".legend")).to_contain_text("▼ less than the base")
    expect(page.locator("aside")).to_contain_text(re.compile(r"1\.30\sms.*▼ −340\sµs · −26\.2\s%", re.DOTALL))
    page.get_by_role("button", name="Color by").click()
    page.get_by_role("option", name="Time", exact=True).click()
    expect(page.locator(".legend")).not_to_contain_text("base")
    assert address(page)["heat"] == "time_ns"
    other = visit(samples, "graph", model=model, run=new, base="onnxruntime-cpu/if_loop", language="zh", theme="dark")
    picture(other)
    expect(other.locator("[role=status]", has_text="基准中没有该模型的实测数据")).to_be_visible()
    assert not raw_keys(other)
