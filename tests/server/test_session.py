"""Who may act: the page's own origin, with the token of the session."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from sites import MakeSite, Site

from tests.server_settings import server_settings
from visualprof.cli import main
from visualprof.server.serve import Server
from visualprof.server.session_token import TOKEN_HEADER, find_token, publish_token

OURS = "http://127.0.0.1:8040"
TOKEN = "vp_s_right"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("VISUALPROF_TOKEN", raising=False)
    return tmp_path / "state" / "visualprof" / "servers"


def reload(site: Site, **headers: str) -> int:
    given = {"Host": "127.0.0.1:8040", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return site.client.post("/api/v1/reload", headers=given).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Origin": OURS},
        {"Origin": "http://127.0.0.1:8150"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://localhost:8040"},
        {"Origin": "http://127.0.0.1:8040.evil.example"},
        {"Origin": "null"},
        {"Referer": "http://127.0.0.1:8150/page"},
        {"User_Agent": BROWSER},
        {"Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_only_our_own_page_sends_changes(site: Site, headers: dict[str, str]) -> None:
    assert reload(site, **headers) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"User_Agent": "curl/8.5"},
        {"Sec_Fetch_Site": "same-origin", "Origin": OURS, "User_Agent": BROWSER},
        {"Origin": OURS, "User_Agent": BROWSER},
        {"Referer": f"{OURS}/", "User_Agent": BROWSER},
    ],
)
def test_the_page_and_other_clients_are_accepted(site: Site, headers: dict[str, str]) -> None:
    assert reload(site, **headers) == 204


def test_behind_a_proxy_the_named_origin_is_ours(make_site: MakeSite) -> None:
    site = make_site(allowed_hosts=("dash.example:8443",))
    assert reload(site, Origin="https://dash.example:8443") == 204
    assert reload(site, Origin="https://dash.example") == 403
    assert site.client.get("/api/v1/status", headers={"Host": "dash.example:8443"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_json_bodies_need_the_json_content_type(site: Site, kind: str) -> None:
    answer = site.client.post("/api/v1/jobs/check", data=b"{}", content_type=kind)
    assert answer.status_code == 415
    assert "application/json" in answer.get_json()["hint"]


CHANGES = [
    ("POST", "reload"),
    ("POST", "uploads?name=a.onnx"),
    ("POST", "uploads/known"),
    ("POST", "models?name=a.onnx"),
    ("POST", "jobs"),
    ("POST", "jobs/draft"),
    ("POST", "jobs/x/cancel"),
    ("POST", "jobs/x/retry"),
    ("DELETE", "jobs/x"),
    ("PATCH", "agents/x"),
    ("DELETE", "agents/x"),
    ("POST", "agents/token"),
    ("POST", "nothing"),
]


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("given", ["", "vp_s_wrong", "\xe9"])
def test_without_the_token_nothing_changes(make_site: MakeSite, method: str, path: str, given: str) -> None:
    site = make_site(token=TOKEN)
    answer = site.client.open(f"/api/v1/{path}", method=method, json={}, headers={TOKEN_HEADER: given} if given else {})
    assert answer.status_code == 401
    assert "link" in answer.get_json()["hint"]
    assert list(site.folder.iterdir()) == []


def test_every_mutation_needs_the_token(make_site: MakeSite) -> None:
    site, open_to_all = make_site(token=TOKEN), set[str]()
    for rule in site.app.url_map.iter_rules():
        path = re.sub("<[^>]+>", "x", rule.rule)
        for method in (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}:
            if path.startswith("/api/v1/") and not path.startswith("/api/v1/agent/"):
                answer = site.client.open(path, method=method, json={})
                if answer.status_code != 401:
                    open_to_all.add(f"{answer.status_code} {answer.get_json().get('error', path).partition(':')[0]}")
    assert open_to_all == {
        "404 this server has no accounts",
        "404 people do not log in by an issuer here",
        "400 the body has an unexpected form",
        "200 /api/v1/query/cancel",  # cancels the reader's own query
    }
    assert list(site.folder.iterdir()) == []


def test_a_mutation_with_the_token_is_accepted(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN)
    assert reload(site, **{TOKEN_HEADER: TOKEN}) == 204
    assert reload(site, **{TOKEN_HEADER: TOKEN, "Origin": "http://127.0.0.1:8150"}) == 403


def test_a_stranger_reads_but_does_not_see_the_registration_token(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN)
    seen = site.client.get("/api/v1/agents").get_json()
    assert seen["token_hidden"]
    assert seen["command"].endswith("--token TOKEN")
    assert list(site.folder.iterdir()) == []
    answer = site.client.get("/api/v1/agents", headers={TOKEN_HEADER: TOKEN}).get_json()
    assert not answer["token_hidden"]
    assert "--token vp_r_" in answer["command"]


def test_a_private_server_is_read_with_the_token(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN, private=True)
    site.write("run/trace.json", "{}")
    for path in ("status", "runs", "models", "agents", "jobs", "openapi.json", "view/overview?run=run"):
        assert site.client.get(f"/api/v1/{path}").status_code == 401, path
    assert site.client.get("/api/v1/runs", headers={TOKEN_HEADER: TOKEN}).status_code == 200
    assert site.client.get("/").status_code == 200
    assert site.client.get("/agent.pyz").status_code == 200


def test_the_page_can_try_a_token(make_site: MakeSite) -> None:
    client = make_site(token=TOKEN, private=True).client
    assert client.get("/api/v1/session").get_json()["trusted"] is False
    assert client.get("/api/v1/session", headers={TOKEN_HEADER: TOKEN}).get_json()["trusted"] is True


def test_the_token_of_a_running_server_is_its_users_alone(home: Path) -> None:
    with publish_token(TOKEN, ["0.0.0.0"], 8040):
        (file,) = home.iterdir()
        assert find_token("127.0.0.1", 8040) == TOKEN
        assert (find_token("127.0.0.2", 8040), find_token("::1", 8040), find_token("127.0.0.1", 8041)) == ("", "", "")
        if os.name == "posix":
            assert [stat.S_IMODE(path.stat().st_mode) for path in (home, file)] == [0o700, 0o600]
    assert list(home.iterdir()) == []


def test_a_server_that_ends_leaves_the_token_of_the_next(home: Path) -> None:
    with publish_token(TOKEN, ["127.0.0.1"], 8040):
        with publish_token("", ["127.0.0.1"], 8040):
            pass
        next(home.iterdir()).write_text("vp_s_next")
    assert find_token("127.0.0.1", 8040) == "vp_s_next"


def test_commands_find_the_token_of_this_users_server(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    with Server([tmp_path / "runs"], 0, server_settings(token=TOKEN)) as server:
        server.start()
        assert server.url_with_token == f"{server.url}#token={TOKEN}"
        assert server.page_url("#/overview?run=a") == f"{server.url}#/overview?run=a&token={TOKEN}"
        for address in (server.url, f"http://localhost:{server.port}"):
            assert main(["machines", "--server", address, "new-token"]) == 0
        next(home.iterdir()).unlink()
        capsys.readouterr()
        assert main(["machines", "--server", server.url, "new-token"]) == 2
        assert "VISUALPROF_TOKEN" in capsys.readouterr().err
        assert main(["machines", "--server", server.url, "--token", TOKEN, "new-token"]) == 0
        older = f"{server.url}?token={TOKEN}"
        for link in (server.url_with_token, server.page_url("#/overview?run=a"), older):
            assert main(["machines", "--server", link, "new-token"]) == 0
