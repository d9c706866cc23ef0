"""The page's files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from sites import MakeSite, Site

from visualprof.server.settings import DIST


@pytest.fixture
def built(make_site: MakeSite, tmp_path: Path) -> Site:
    (tmp_path / "dist" / "assets").mkdir(parents=True)
    (tmp_path / "dist" / "index.html").write_text("<!doctype html><title>page</title>")
    (tmp_path / "dist" / "assets" / "app-1a2b.js").write_text("export {}")
    (tmp_path / "dist" / "assets" / "app-1a2b.css").write_text("a{}")
    (tmp_path / "dist" / "icon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    return make_site()


@pytest.mark.parametrize("path", ["/", "/operator", "/some/deep/page"])
def test_addresses_of_the_page_give_the_page(built: Site, path: str) -> None:
    answer = built.client.get(path)
    assert (answer.status_code, answer.mimetype) == (200, "text/html")
    assert answer.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    ("path", "mimetype"),
    [("/assets/app-1a2b.js", "text/javascript"), ("/assets/app-1a2b.css", "text/css"), ("/icon.svg", "image/svg+xml")],
)
def test_types_do_not_depend_on_the_machine(built: Site, path: str, mimetype: str) -> None:
    assert built.client.get(path).mimetype == mimetype


def test_hashed_files_are_kept_for_ever(built: Site) -> None:
    assert "immutable" in built.client.get("/assets/app-1a2b.js").headers["Cache-Control"]
    assert built.client.get("/icon.svg").headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    ("reads", "encoding"),
    [("br, gzip", "br"), ("gzip", "gzip"), ("br;q=0, gzip", "gzip"), ("identity", None), ("", None)],
)
def test_files_are_packed_as_the_browser_reads_them(
    built: Site, tmp_path: Path, reads: str, encoding: str | None
) -> None:
    (tmp_path / "dist" / "assets" / "app-1a2b.js.br").write_bytes(b"packed by the build")
    answer = built.client.get("/assets/app-1a2b.js", headers={"Accept-Encoding": reads})
    assert (answer.headers.get("Content-Encoding"), answer.mimetype) == (encoding, "text/javascript")
    assert answer.headers["Vary"] == "Accept-Encoding"
    expected = {"br": b"packed by the build", None: b"export {}"}
    assert (gzip.decompress(answer.data) == b"export {}") if encoding == "gzip" else (answer.data == expected[encoding])


@pytest.mark.parametrize("path", ["/../secret.txt", "/%2e%2e/secret.txt", "/assets/../../secret.txt", "/..%2fsecret"])
def test_nothing_outside_is_served(built: Site, path: str) -> None:
    assert b"secret" not in built.client.get(path).data.replace(path.encode(), b"").replace(b"secret.txt", b"")


def test_missing_files_and_api_routes_are_404(built: Site) -> None:
    assert built.client.get("/assets/gone.js").status_code == 404
    answer = built.client.get("/api/v1/gone")
    assert (answer.status_code, answer.mimetype) == (404, "application/json")
    assert built.client.post("/api/v1/views").status_code == 405


def test_an_unbuilt_page_says_how_to_build_it(site: Site) -> None:
    answer = site.client.get("/")
    assert answer.status_code == 200
    assert "pip install ." in answer.get_data(as_text=True)
    assert "<script" not in answer.get_data(as_text=True)


@pytest.mark.skipif(not DIST.exists(), reason="the page is not built here")
def test_the_page_carries_the_licenses_of_what_it_contains() -> None:
    used = json.loads((DIST.parent / "package.json").read_text())["dependencies"]
    text = (DIST / "third-party-licenses.txt").read_text()
    assert [name for name in used if f"## {name} - " not in text and f"## @{name}/" not in text] == []
    assert "Apache ECharts" in (DIST.parents[2] / "NOTICE").read_text()
