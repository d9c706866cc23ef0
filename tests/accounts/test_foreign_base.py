"""A run of another user cannot be a base: the answer is that of a missing run."""

from __future__ import annotations

import pytest
from teams import Team


@pytest.mark.parametrize("view", ["overview", "evaluation"])
def test_a_foreign_base_is_not_there(team: Team, view: str) -> None:
    answers = {
        (name, base): team.browser(name).ask("GET", "diff", query_string={"run": "shared", "base": base, "view": view})
        for name, base in (("bob", team.run), ("bob", "nowhere"), ("ann", team.run))
    }
    foreign, missing = answers["bob", team.run], answers["bob", "nowhere"]
    assert foreign.status_code == missing.status_code == 404
    assert foreign.get_json()["error"].replace(team.run, "nowhere") == missing.get_json()["error"]
    assert view == "evaluation" or answers["ann", team.run].status_code == 200
