"""Quotas as people meet them: clear refusals, one's own on the Account page, administrators change them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from teams import MODEL_FILE, Team

pytestmark = pytest.mark.both_databases

SIZE = MODEL_FILE.stat().st_size
HOUR_NS = 3600 * 10**9


def bound(team: Team, user: str | None, **quota: int) -> None:
    body = {"user": user and team.ids[user], "quota": quota}
    assert team.browser("root").ask("PUT", "quotas", json=body).status_code == 200


def array(size: int, seed: int = 0) -> bytes:
    file = io.BytesIO()
    np.save(file, np.full(size, seed, np.uint8))
    return file.getvalue()


def test_a_user_sees_usage_and_quota(team: Team) -> None:
    bound(team, None, jobs_waiting=5, device_ns=10 * HOUR_NS)
    bound(team, "bob", upload_bytes=7)
    account = team.browser("ann").ask("GET", "account").get_json()
    assert account["quota"] == {
        "jobs_waiting": 5,
        "jobs_running": None,
        "upload_bytes": None,
        "device_ns": 10 * HOUR_NS,
    }
    assert account["used"] == {"jobs_waiting": 1, "jobs_running": 0, "upload_bytes": SIZE, "device_ns": 0}
    listed = team.browser("root").ask("GET", "quotas").get_json()
    own = {user["email"].partition("@")[0]: user["own"] for user in listed["users"]}
    assert (own["ann"], own["bob"]["upload_bytes"], listed["everybody"]["jobs_waiting"]) == (None, 7, 5)
    team.browser("root").ask("PUT", "quotas", json={"user": team.ids["bob"], "quota": None})
    assert team.browser("bob").ask("GET", "account").get_json()["quota"]["upload_bytes"] is None


def test_a_job_beyond_the_quota_is_rejected_with_a_hint(team: Team) -> None:
    bound(team, "ann", jobs_waiting=1)
    ann = team.browser("ann")
    request = ann.ask("POST", "jobs/draft", json={"model": team.blob}).get_json()["request"]
    request |= {"key": "second", "specs": [{"id": "cpu", "backend": "onnxruntime"}]}
    answer = ann.ask("POST", "jobs", json=request)
    assert (answer.status_code, answer.get_json()) == (
        429,
        {
            "error": "jobs that wait: 1 of 1",
            "hint": "cancel one, or ask an administrator for more",
            "page": "team#quotas",
        },
    )
    ann.ask("POST", f"jobs/{team.job}/cancel")
    again = ann.ask("POST", "jobs", json=request)
    assert again.status_code == 201


@pytest.mark.parametrize("route", ["uploads", "models"])
def test_a_too_large_upload_is_rejected_before_it_is_read(team: Team, route: str) -> None:
    bob = team.browser("bob")
    bound(team, "bob", upload_bytes=SIZE - 1)
    answer = bob.ask("POST", f"{route}?name=a.onnx", data=MODEL_FILE.read_bytes())
    assert answer.status_code == 429
    assert answer.get_json()["error"].startswith("uploads: 0.0 of ")
    bound(team, "bob", upload_bytes=SIZE)
    assert bob.ask("POST", f"{route}?name=a.onnx", data=MODEL_FILE.read_bytes()).status_code == 201
    assert bob.ask("POST", f"{route}?name=b.npy", data=array(10)).status_code == 429


def test_an_archive_that_unpacks_beyond_the_quota_is_removed(team: Team) -> None:
    bob, blobs = team.browser("bob"), team.remote.folder / "blobs"
    before = {path.name for path in blobs.iterdir()}
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(100_000, np.uint8), b=np.ones(100_000, np.uint8))
    assert len(file.getvalue()) < 5000
    bound(team, "bob", upload_bytes=150_000)
    answer = bob.ask("POST", "uploads?name=two.npz", data=file.getvalue())
    assert answer.status_code == 429
    assert {path.name for path in blobs.iterdir()} == before
    assert bob.ask("GET", "account").get_json()["used"]["upload_bytes"] == 0


def test_a_rejected_upload_keeps_the_file_of_other_holders(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(100_000, np.uint8))
    blob = ann.ask("POST", "uploads?name=one.npz", data=file.getvalue()).get_json()["blob"]
    bound(team, "bob", upload_bytes=50_000)
    assert bob.ask("POST", "uploads?name=one.npz", data=file.getvalue()).status_code == 429
    assert ann.ask("POST", "uploads/known", json={"blob": blob, "name": "again.npy"}).status_code == 200
    assert ann.ask("GET", "account").get_json()["used"]["upload_bytes"] == SIZE + 100_128, "a head of 128 bytes"


def test_changes_are_in_the_log(team: Team) -> None:
    root = team.browser("root")
    bound(team, None, jobs_running=2)
    bound(team, "ann", jobs_waiting=3, upload_bytes=9)
    root.ask("PUT", "quotas", json={"user": team.ids["ann"], "quota": None})
    deeds = root.ask("GET", "audit").get_json()["deeds"]
    told = [deed["subject"] for deed in deeds if deed["action"] == "change quota"]
    assert told == [
        "ann@example.org: default",
        "ann@example.org: jobs_waiting 3, upload_bytes 9",
        "everybody: jobs_running 2",
    ]


def test_impossible_quotas(team: Team) -> None:
    root = team.browser("root")
    for quota in ({"jobs_waiting": -1}, {"device_ns": 2**60}, {"jobs_waiting": 1.5}, {"bytes": 1}):
        assert root.ask("PUT", "quotas", json={"user": None, "quota": quota}).status_code == 400, quota
    assert root.ask("PUT", "quotas", json={"user": "nobody", "quota": {}}).status_code == 404
