"""The location of a bucket: `s3://bucket/prefix?endpoint=https://...`. The URL contains no credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from visualprof.errors import BadParameter
from visualprof.messages import msg

DEFAULT_CACHE_BYTES = 20 * 10**9  # local copies of the bucket's files
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._-]*/)*")
_URL_HINT = msg("queue.like_s3_bucket_prefix", "it is like s3://bucket/prefix?endpoint=https://s3.example.org")


@dataclass(frozen=True)
class BucketLocation:
    """The location of a bucket.

    Attributes:
        bucket: Name of the bucket.
        prefix: Prefix of all keys, "" or with a slash at its end.
        endpoint: Address of the service.
        public: Address of the service for browsers and agents.
        region: Region of the service.
        virtual: Whether the bucket is part of the host name instead of the path.
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
        """Origin of the URLs to which browsers send files."""
        parts = urlsplit(self.public)
        return f"{parts.scheme}://{f'{self.bucket}.' if self.virtual else ''}{parts.netloc}"


def parse_bucket_url(url: str) -> BucketLocation:
    """Parse the URL of a bucket.

    Raises:
        BadParameter: The URL is invalid, or it contains credentials.
    """
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = f"{parts.path.strip('/')}/".lstrip("/")
    checks = (
        (parts.scheme == "s3" and bool(_BUCKET.fullmatch(parts.netloc)), "bucket"),
        (bool(_PREFIX.fullmatch(prefix)), "prefix"),
        (_is_endpoint(parameters.get("endpoint", "")), "endpoint"),
        (_is_endpoint(parameters.get("public", parameters.get("endpoint", ""))), "public"),
        (parameters.get("style", "path") in ("path", "virtual"), "style"),
        *((name in ("endpoint", "public", "region", "style"), name) for name in parameters),
        (not parts.fragment, "#"),
    )
    if invalid := next((name for is_valid, name in checks if not is_valid), ""):
        raise BadParameter(
            msg("queue.no_store_missing_wrong", f"this is no store: {invalid} is missing or wrong"), _URL_HINT
        )
    endpoint = parameters["endpoint"].rstrip("/")
    public = parameters.get("public", endpoint).rstrip("/")
    region, virtual = parameters.get("region", "us-east-1"), parameters.get("style") == "virtual"
    return BucketLocation(parts.netloc, prefix, endpoint, public, region, virtual)


def _is_endpoint(text: str) -> bool:
    parts = urlsplit(text)
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc or parts.path.strip("/"))
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain and not set(text) & set(" ;,'\"")
