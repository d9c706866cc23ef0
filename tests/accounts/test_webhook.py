"""Webhooks: where they go and where they do not, whatever the address is called."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
import time

import pytest
from receivers import webhook

from visualprof.accounts.notifications import webhook as module
from visualprof.accounts.notifications.webhook import DeliveryError, send_webhook, target_of
from visualprof.errors import BadParameter

HERE = ("127.0.0.1",)


def names(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Has every name mean the addresses in turn, one at each question; the list grows with the questions."""
    asked: list[str] = []

    def lookup(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        words = answers[min(len(asked), len(answers)) - 1].split()
        return [(0, 0, 0, "", (address, port)) for address in words]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


def test_webhook_requests_are_signed() -> None:
    with webhook() as hook:
        send_webhook(hook.url, "vp_h_secret", b'{"a": 1}', 7, HERE)
    ((headers, body),) = hook.got
    assert (headers["path"], body, headers["Content-Type"]) == ("/hook?x=1", b'{"a": 1}', "application/json")
    assert (headers["X-Visualprof-Delivery"], headers["Host"]) == ("7", f"127.0.0.1:{hook.port}")
    signature_parts = dict(part.split("=") for part in headers["X-Visualprof-Signature"].split(","))
    assert abs(int(signature_parts["t"]) - time.time()) < 60
    mac = hmac.new(b"vp_h_secret", signature_parts["t"].encode() + b'.{"a": 1}', hashlib.sha256)
    assert hmac.compare_digest(signature_parts["v1"], mac.hexdigest())


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a00:1]",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
    ],
)
def test_private_addresses_are_not_reached(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_connected", lambda *_: pytest.fail("it connects"))
    with pytest.raises(DeliveryError, match="no public address"):
        send_webhook(f"http://{host}:8000/", "s", b"{}", 1)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_a_public_host_is_reached_at_the_checked_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[object] = []

    def connect(where: tuple[str, int], _: float) -> None:
        connected.append(where)
        raise OSError("far away")

    asked = names(monkeypatch, address, "127.0.0.1")  # the name changes its mind after the first question
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(DeliveryError, match="far away"):
        send_webhook("http://rebound.example.org/", "s", b"{}", 1)
    assert (asked, connected) == (["rebound.example.org"], [(address, 80)])


def test_a_host_with_any_private_address_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "93.184.216.34 10.0.0.1")
    monkeypatch.setattr(module, "_connected", lambda *_: pytest.fail("it connects"))
    with pytest.raises(DeliveryError, match="no public address"):
        send_webhook("http://both.example.org/", "s", b"{}", 1)


def test_an_allowed_network_also_applies_to_mapped_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, "::ffff:10.1.2.3")
    monkeypatch.setattr(module, "_post", lambda *_: 200)
    send_webhook("http://chat.example.org/", "s", b"{}", 1, ["10.1.0.0/16"])
    with pytest.raises(DeliveryError, match="no public address"):
        send_webhook("http://chat.example.org/", "s", b"{}", 1, ["10.2.0.0/16"])


def test_redirects_are_not_followed() -> None:
    with webhook() as inner, webhook(302, Location=inner.url) as hook:
        with pytest.raises(DeliveryError, match="sends it elsewhere"):
            send_webhook(hook.url, "s", b"{}", 1, HERE)
        assert (len(hook.got), inner.got) == (1, [])


def test_rejections_are_reported() -> None:
    with webhook(500) as hook, pytest.raises(DeliveryError, match="answered with 500"):
        send_webhook(hook.url, "s", b"{}", 1, HERE)
    with pytest.raises(DeliveryError, match="refused"):
        send_webhook(hook.url, "s", b"{}", 1, HERE)


@pytest.mark.parametrize("drips", [b"", b"H"])
def test_a_slow_receiver_is_left(drips: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    while connection.send(drips) or True:
                        time.sleep(0.05)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        begun = time.monotonic()
        with pytest.raises(DeliveryError):
            send_webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", "s", b"{}", 1, HERE)
        assert time.monotonic() - begun < 20  # the receiver never ends


def test_an_answer_that_is_not_http_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-200 OK yes")

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(DeliveryError, match="by HTTP"):
            send_webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", "s", b"{}", 1, HERE)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://a.example",
        "file:///etc/passwd",
        "gopher://a.example",
        "http://",
        "http:///x",
        "//a.example",
        "http://user@a.example/",
        "http://u:p@a.example/",
        "http://a.example:22/",
        "http://a.example:25/",
        "http://a.example:99999/",
        "http://a.example:x/",
        "http://a b.example/",
        "http://a.example/\r\nX: y",
        "http://a.example/\tz",
        "http://ä.example/",
        "http://[::1/",
        "http://a.example/" + "x" * 1000,
    ],
)
def test_invalid_webhook_addresses_are_rejected(url: str) -> None:
    with pytest.raises(BadParameter, match="webhook"):
        target_of(url)


def test_the_parts_of_an_address() -> None:
    target = target_of("https://chat.example.org/hooks/a?b=c#d")
    assert (target.secure, target.host, target.port, target.path) == (True, "chat.example.org", 443, "/hooks/a?b=c")
