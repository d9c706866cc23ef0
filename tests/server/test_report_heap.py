"""The page of memory snapshots in a report: the answers that the page requests first, and all tiles of the history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.server.sites import MakeSite
from tests.server.test_report import dist, held, report  # noqa: F401 - dist is a fixture

NAME = "train_oom.pickle"


@pytest.mark.slow
def test_a_report_holds_the_page_of_a_snapshot(make_site: MakeSite, tmp_path: Path, dist: Path) -> None:  # noqa: F811
    site = make_site(dist=dist)
    site.write(f"run/{NAME}", (FIXTURES / "memory_snapshots" / NAME).read_bytes())
    answers = held(report(site, f"run/{NAME}"))[0]["answers"]

    def ask(route: str, query: str = "") -> object:
        return site.client.get(f"/api/v1/{route}?run=run%2F{NAME}{query}").get_json()

    meta = answers["snapshot/meta"]
    assert (meta["entries"], meta["finest_level"], meta["devices"]) == (1012, 0, [0])
    tiles = {key for key in answers if key.startswith("snapshot/tile")}
    # 1,012 entries: 4 tiles of 256 entries, 2 of 512, and 1 of 1,024.
    assert len(tiles) == 4 + 2 + 1
    assert answers["snapshot/tile&index=3&level=0"] == ask("snapshot/tile", "&level=0&index=3")
    for at in ("peak", "oom", "end"):
        assert answers[f"snapshot/map&at={at}"] == ask("snapshot/map", f"&at={at}&max_pieces=4000")
        for more in ("", "&inverted=true"):
            query = f"&at={at}&by=category{more}"
            assert answers[f"snapshot/totals{query}"] == ask("snapshot/totals", query)
    assert answers["view/snapshot&table=alive"] == ask("view/snapshot", "&table=alive")
    assert answers["view/snapshot&at=oom&by=module&table=alive"] == ask(
        "view/snapshot", "&at=oom&by=module&table=alive"
    )
    assert len(answers["snapshot/blocks&at=all"]["columns"]["block"]) > 300
    assert str(tmp_path) not in json.dumps(answers)
