"""The URL of a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from visualprof.cli import main
from visualprof.errors import BadParameter
from visualprof.remote.queue.store.bucket_url import parse_bucket_url

AT = "endpoint=https://s3.example.org"


def test_a_bucket_is_identified_by_its_url() -> None:
    place = parse_bucket_url(f"s3://team-files/vp/runs?{AT}:9000&region=garage")
    assert (place.bucket, place.prefix, place.endpoint) == ("team-files", "vp/runs/", "https://s3.example.org:9000")
    assert (place.region, place.public, place.virtual) == ("garage", place.endpoint, False)
    assert str(place) == "s3://team-files/vp/runs at https://s3.example.org:9000"
    assert parse_bucket_url(f"s3://team-files?{AT}").prefix == ""


@pytest.mark.parametrize(
    ("more", "origin"),
    [
        ("", "https://s3.example.org"),
        ("&public=https://files.example.org:444/", "https://files.example.org:444"),
        ("&style=virtual", "https://bucket.s3.example.org"),
    ],
)
def test_pages_may_send_to_where_addresses_lead(more: str, origin: str) -> None:
    assert parse_bucket_url(f"s3://bucket/a?{AT}{more}").origin == origin


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("https://s3.example.org/bucket", "bucket"),
        (f"s3://key:secret@bucket?{AT}", "bucket"),
        (f"s3://UPPER?{AT}", "bucket"),
        (f"s3://bucket/../other?{AT}", "prefix"),
        (f"s3://bucket/a//b?{AT}", "prefix"),
        ("s3://bucket", "endpoint"),
        ("s3://bucket?endpoint=https://key:secret@s3.example.org", "endpoint"),
        ("s3://bucket?endpoint=file:///etc", "endpoint"),
        ("s3://bucket?endpoint=https://s3.example.org;script-src", "endpoint"),
        (f"s3://bucket?{AT}&public=nonsense", "public"),
        (f"s3://bucket?{AT}&style=other", "style"),
        (f"s3://bucket?{AT}&secret_key=x", "secret_key"),
    ],
)
def test_an_invalid_url_is_rejected_with_the_reason(url: str, wrong: str) -> None:
    with pytest.raises(BadParameter, match=f"{wrong} is missing or wrong"):
        parse_bucket_url(url)


def test_a_wrong_store_ends_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "visualprof.toml").write_text('logdir = ["."]\nstore = "s3://bucket"\n')
    assert main(["--config", str(tmp_path / "visualprof.toml")]) != 0
    assert "visualprof.toml:2: " in (output := capsys.readouterr().err)
    assert "endpoint is missing or wrong" in output
