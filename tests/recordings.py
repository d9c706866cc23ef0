"""Recordings and models that tests read: our own from archives of this repository, those of others by download.

All of them lie in `.recordings`, which git ignores:

- Our own are unpacked there from `tests/fixtures/recordings/*.tar.xz` whenever an archive has changed.
- Those of others are listed in `tests/fixtures/recordings/others.csv`. `make fixtures` downloads them. A test that
  needs a missing one is skipped, and the end of the run says how many were. `recordings_at_most` of pyproject.toml
  limits their number, so that a renamed file or a new test cannot skip unnoticed.

A folder named by VISUALPROF_RECORDINGS (default: `shared` next to the checkout) is searched before the network.
"""

from __future__ import annotations

import csv
import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "tests" / "fixtures" / "recordings"
RECORDINGS = ROOT / ".recordings"
LOCAL_COPY = Path(os.environ.get("VISUALPROF_RECORDINGS", ROOT.parent / "shared"))
SKIPPED = "needs the recordings of others: make fixtures"
LIMIT = "recordings_at_most"


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A file of another project.

    Attributes:
        path: Path below `.recordings`.
        address: URL of the file, or `pypi:NAME==VERSION` of the wheel that contains it.
        member: Member of the wheel, or name of the test whose inline trace the file is; empty otherwise.
        change: `gzip` if the file is stored compressed, `inline` if it is part of a test's source; empty otherwise.
        sha256: Digest of what was downloaded, before `change`.
        bytes: Size of what was downloaded, in digits.
        license: License of the project.
    """

    path: str
    address: str
    member: str
    change: str
    sha256: str
    bytes: str
    license: str


def foreign_files() -> list[Foreign]:
    """Return the table of files of others."""
    with (ARCHIVES / "others.csv").open(encoding="utf-8", newline="") as stream:
        return [Foreign(**row) for row in csv.DictReader(stream)]


FOREIGN_PATHS = {file.path for file in foreign_files()}


def recording_path(path: str) -> Path:
    """Return a file or folder by its path below `.recordings`; skip the test if another project has it.

    Raises:
        FileNotFoundError: Neither an archive nor the table has it.
    """
    listed = [name for name in FOREIGN_PATHS if name == path or name.startswith(f"{path}/")]
    if not all((RECORDINGS / name).exists() for name in listed):
        pytest.skip(SKIPPED)
    if not (RECORDINGS / path).exists():
        raise FileNotFoundError(f"{path} is in no archive of {ARCHIVES} and not in others.csv")
    return RECORDINGS / path


def prepare() -> None:
    """Unpack changed archives, and copy files of others from the local folder."""
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        stamp = RECORDINGS / ".stamps" / archive.name
        version = str(zlib.crc32(archive.read_bytes()))
        if not stamp.exists() or stamp.read_text() != version:
            for name, data in unpacked(archive):
                put(RECORDINGS / name, data)
            put(stamp, version.encode())
    for path in FOREIGN_PATHS:
        if not (RECORDINGS / path).exists() and (LOCAL_COPY / path).is_file():
            put(RECORDINGS / path, (LOCAL_COPY / path).read_bytes())


def unpacked(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each member. Archives contain `.gz` files uncompressed, which makes them smaller."""
    with tarfile.open(archive) as members:
        for member in members:
            stream = members.extractfile(member)
            if stream is not None:
                data = stream.read()
                yield member.name, gzip.compress(data, mtime=0) if member.name.endswith(".gz") else data


def put(path: Path, data: bytes) -> None:
    """Write a file in one step, because several processes may prepare the same folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    shutil.move(draft, path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(LIMIT, "Fail if more tests are skipped because recordings of others are missing.", default="0")


def skipped_tests(config: pytest.Config) -> int:
    """Return how many tests were skipped because recordings of others are missing."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return sum(SKIPPED in str(report.longrepr) for report in reports)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if skipped_tests(session.config) > int(session.config.getini(LIMIT)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count, limit = skipped_tests(config), int(config.getini(LIMIT))
    if count:
        terminalreporter.write_line(f"{count} tests need the recordings of others: make fixtures")
    if count > limit:
        terminalreporter.write_line(f"{LIMIT} of pyproject.toml allows {limit} such tests", red=True)


prepare()
