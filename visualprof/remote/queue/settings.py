"""Settings of the job queue."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter
from visualprof.remote.queue.store.bucket_url import DEFAULT_CACHE_BYTES, BucketLocation, parse_bucket_url
from visualprof.setting_options import number, option

if TYPE_CHECKING:
    from visualprof.remote.protocol import Intervals

_LEASE_S = 30.0
_POLL_S = 20.0


def _bucket_url(text: str) -> str:
    try:
        parse_bucket_url(text)
    except BadParameter as error:
        raise argparse.ArgumentTypeError(f"{error.error}; {error.hint}") from error
    return text


@dataclass(frozen=True)
class QueueSettings:
    """Storage of jobs and their files, and the time after which an agent counts as offline."""

    with_agent: bool = option("--with-agent", False, "Also run jobs on this machine.")
    data: Path | None = option(
        "--data",
        None,
        "Folder where jobs are stored (default: .visualprof in the first log directory).",
        metavar="DIR",
        convert=Path,
    )
    database: str = option(
        "--database",
        "",
        "PostgreSQL address, such as postgresql+psycopg://user@host/name (default: VISUALPROF_DATABASE, else an SQLite "
        "file).",
        metavar="URL",
        variable="VISUALPROF_DATABASE",
    )
    store: BucketLocation | None = option(
        "--store",
        None,
        "Bucket for uploads and results, such as s3://bucket/prefix?endpoint=https://... (default: files in --data).",
        metavar="URL",
        check=_bucket_url,
        convert=parse_bucket_url,
    )
    cache_bytes: int = option(
        "--store-cache",
        DEFAULT_CACHE_BYTES,
        "Size limit of the local cache of the store's files, in GB (default: %(default)g).",
        metavar="GB",
        check=number(0.001, 1e6, "a cache has 0.001 to 1,000,000 GB"),
        unit=1e9,
    )
    store_runs: bool = option(
        "--store-runs",
        False,
        "Also keep the runs that jobs produce in the store. The log directory then holds only recently used runs.",
    )
    lease_s: float = option(
        "--lease",
        _LEASE_S,
        "Consider an agent lost after S seconds without a heartbeat; other intervals are derived from it (default: "
        "%(default)g).",
        metavar="S",
        check=number(0.5, 3600, "a lease is 0.5 to 3600 seconds"),
    )

    @property
    def intervals(self) -> Intervals:
        """The intervals for agents: all times in proportion to the lease."""
        from visualprof.remote.protocol import Intervals  # with all messages, which `visualprof --help` does not need

        poll = min(_POLL_S, max(self.lease_s * _POLL_S / _LEASE_S, 1.0))
        return Intervals(lease_s=self.lease_s, heartbeat_s=self.lease_s / 3, poll_s=poll)
