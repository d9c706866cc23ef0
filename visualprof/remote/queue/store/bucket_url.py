"""Where a bucket is: `s3://bucket/prefix?endpoint=https://...`. Credentials are none of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from visualprof.errors import BadParameter
from visualprof.messages import msg

CACHE_BYTES = 20 * 10**9  # of copies of its files beside the server, unless told
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._-]*/)*")
_LIKE = msg("queue.like_s3_bucket_prefix", "it is like s3://bucket/prefix?endpoint=https://s3.example.org")


@dataclass(frozen=True)
class BucketLocation:
    """A bucket.

    prefix: of the keys, "" or with a slash at its end. endpoint: the service. public: by which browsers and agents
    reach it, where that is another address. virtual: the bucket is part of the host's name, not of the path.
    """

    bucket: str
    prefix: str
    endpoint: str
    public: str
    region: str
    virtual: bool

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix.rstrip('/')} at {self.endpoint}"

    @property
    def origin(self) -> str:
        """Of the addresses that browsers send files to."""
        parts = urlsplit(self.public)
        return f"{parts.scheme}://{f'{self.bucket}.' if self.virtual else ''}{parts.netloc}"


def parse_bucket_url(url: str) -> BucketLocation:
    """A bucket by its URL.

    Raises: BadParameter: it is none, or has credentials in it.
    """
    parts = urlsplit(url)
    facts = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = f"{parts.path.strip('/')}/".lstrip("/")
    wrong = (
        (parts.scheme == "s3" and bool(_BUCKET.fullmatch(parts.netloc)), "bucket"),
        (bool(_PREFIX.fullmatch(prefix)), "prefix"),
        (_is_endpoint(facts.get("endpoint", "")), "endpoint"),
        (_is_endpoint(facts.get("public", facts.get("endpoint", ""))), "public"),
        (facts.get("style", "path") in ("path", "virtual"), "style"),
        *((name in ("endpoint", "public", "region", "style"), name) for name in facts),
        (not parts.fragment, "#"),
    )
    if refused := next((name for fine, name in wrong if not fine), ""):
        raise BadParameter(
            msg("queue.no_store_missing_wrong", f"this is no store: {refused} is missing or wrong"), _LIKE
        )
    endpoint = facts["endpoint"].rstrip("/")
    public = facts.get("public", endpoint).rstrip("/")
    region, virtual = facts.get("region", "us-east-1"), facts.get("style") == "virtual"
    return BucketLocation(parts.netloc, prefix, endpoint, public, region, virtual)


def _is_endpoint(text: str) -> bool:
    parts = urlsplit(text)
    bare = not (parts.query or parts.fragment or "@" in parts.netloc or parts.path.strip("/"))
    return parts.scheme in ("http", "https") and bool(parts.hostname) and bare and not set(text) & set(" ;,'\"")
