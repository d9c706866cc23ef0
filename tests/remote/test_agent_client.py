"""How the agent's HTTP client handles answers."""

from __future__ import annotations

import threading
import time

import pytest

from tests.remote.agent_runs import server
from tests.remote.fake_server import TOKEN, FakeServer
from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.link.client import Client, RequestRejected, Unreachable, retry

__all__ = ["server"]


def registered(server: FakeServer) -> Client:
    client = Client(server.url)
    client.token = client.post("register", {"capabilities": {}}, token=TOKEN)["token"]
    return client


def test_the_token_does_not_follow_a_redirect(server: FakeServer) -> None:
    client = registered(server)
    with FakeServer() as elsewhere:
        server.redirect = elsewhere.url
        with pytest.raises(RequestRejected) as error:
            client.post("heartbeat", {"tasks": []})
        assert error.value.status == 302
        assert elsewhere.requests == []


def test_the_token_is_not_sent_to_another_place_of_files(server: FakeServer) -> None:
    client = registered(server)
    task = server.submit(b"model")
    with FakeServer() as store:
        store.blobs = server.blobs
        got: list[bytes] = []
        assert client.get(store.url + task.lease.files[0].url, 0, got.append) == 0
        assert b"".join(got) == b"model"
        assert "Authorization" not in store.requests[0][2]


@pytest.mark.slow
def test_a_busy_server_is_retried_after_the_requested_delay(server: FakeServer) -> None:
    client = registered(server)
    server.busy = [(503, "1"), (502, "")]
    began = time.monotonic()
    assert retry(lambda: client.post("heartbeat", {"tasks": []}), threading.Event())["stale"] == []
    assert time.monotonic() - began > 1


@pytest.mark.parametrize("status", [400, 401, 409, 413, 422, 507])
def test_an_answer_that_stays_the_same_is_not_asked_for_again(server: FakeServer, status: int) -> None:
    client = registered(server)
    server.busy = [(status, "")]
    with pytest.raises(RequestRejected) as error:
        retry(lambda: client.post("heartbeat", {"tasks": []}), threading.Event())
    assert (error.value.status, error.value.body) == (status, {"error": "busy"})


def test_waiting_for_the_server_can_be_stopped(server: FakeServer) -> None:
    stop = threading.Event()
    server.down = True
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(StopRequested):
        retry(lambda: Client(server.url).post("register", {}), stop)


def test_patience_has_an_end(server: FakeServer) -> None:
    server.down = True
    with pytest.raises(Unreachable):
        retry(lambda: Client(server.url).post("register", {}), threading.Event(), max_wait_s=0.3)


def test_a_proxy_is_not_asked_for_this_machine(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert registered(server).token


def test_another_kind_of_server_is_distinguished_from_a_dashboard(server: FakeServer) -> None:
    with pytest.raises(RequestRejected) as error:
        Client(server.url + "/elsewhere").post("register", {}, token=TOKEN)
    assert error.value.status == 404
