"""Remote files: always listed, downloaded and parsed on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from visualprof.errors import NotReady, VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Span
from visualprof.reader.logdir.pool import Listener
from visualprof.reader.logdir.scan import LogFile, Root, Verdict, Version
from visualprof.reader.logdir.summary import Failure, Summary

SUMMARY = Summary(
    fingerprint="f",
    format="kineto",
    framework="pytorch",
    rank=-1,
    events=1,
    duration_ns=1,
    steps=(),
    views=("overview",),
    warnings=(),
    truncated=False,
)
DOWN = NotReady("the store does not answer")


class FakeParser:
    """Keeps jobs until the test ends them."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.listener: Listener[Summary] | None = None

    def start(self, listener: Listener[Summary]) -> None:
        self.listener = listener

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        assert Path(path).is_file(), "it is read only when it is there"
        self.waiting.append(key)

    def prioritize(self, key: str) -> None: ...

    def cancel(self, key: str) -> None:
        self.waiting = [waiting for waiting in self.waiting if waiting != key]

    def close(self) -> None: ...

    def end(self, outcome: Summary | Failure = SUMMARY) -> None:
        assert self.listener
        self.listener.on_finished(self.waiting.pop(), outcome)


class Site:
    """A log directory with one file that is elsewhere. wanted: fetches under way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"
        self.folder.mkdir()
        self.path = self.folder / "j" / "s" / "timeline.json"
        self.known = True
        self.wanted: list[Callable[[VisualprofError | None], object]] = []
        self.parser = FakeParser()
        self.begin(folder)

    def begin(self, folder: Path) -> None:
        """A server, or the next one."""
        self.logdir = LogDirectory([self.folder], self.parser, Cache(folder / "cache", 1 << 30), events=False)
        self.logdir.add_remote_source(self)
        self.logdir.rescan()

    def files(self) -> list[LogFile] | None:
        root, verdict = Root(self.folder, ""), Verdict("profile", "kineto")
        version = Version(2, 10**18, 0)
        log_file = LogFile(
            path=str(self.path),
            file="j/s/timeline.json",
            root=root,
            folder="j/s",
            name="timeline.json",
            version=version,
            verdict=verdict,
        )
        return [log_file] if self.known else None

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        assert path == str(self.path)
        self.wanted.append(on_done)

    def ensure_local(self, path: str) -> None:
        raise DOWN

    def come(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"{}")
        self.wanted.pop()(None)

    @property
    def span(self) -> Span:
        return self.logdir.listing().find("j/s")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_remote_file_is_listed_and_not_fetched_before_a_request(site: Site) -> None:
    assert (site.span.state, site.span.format, site.wanted, site.parser.waiting) == ("waiting", "kineto", [], [])
    site.logdir.set_active_run("j/s")
    site.logdir.set_active_run("j/s")
    assert (len(site.wanted), site.parser.waiting) == (1, []), "it is fetched once"
    assert site.logdir.busy_paths() == {str(site.path)}
    site.come()
    site.parser.end()
    assert (site.span.state, site.span.summary, site.logdir.busy_paths()) == ("ready", SUMMARY, set())


def test_a_local_copy_that_appears_or_disappears_is_not_a_change(site: Site) -> None:
    site.logdir.set_active_run("j/s")
    site.come()
    site.parser.end()
    revision = site.logdir.revision
    site.logdir.rescan()
    site.path.unlink()
    site.logdir.rescan()
    assert (site.logdir.revision, site.span.state) == (revision, "ready")


def test_a_temporary_download_error_is_reported_and_retried(site: Site) -> None:
    site.logdir.set_active_run("j/s")
    site.wanted.pop()(DOWN)
    assert (site.span.state, site.span.failure) == ("waiting", Failure(DOWN.error, DOWN.hint, 503))
    site.logdir.set_active_run("j/s")
    assert len(site.wanted) == 1
    site.come()
    site.parser.end()
    assert (site.span.state, site.span.failure) == ("ready", None)


def test_a_permanent_download_error_is_a_failure(site: Site) -> None:
    site.logdir.set_active_run("j/s")
    site.wanted.pop()(VisualprofError("it is damaged", "restore it"))
    assert (site.span.state, site.span.failure and site.span.failure.error) == ("failed", "it is damaged")
    site.logdir.set_active_run("j/s")
    assert not site.wanted


def test_columns_that_are_gone_are_read_again_from_elsewhere(site: Site) -> None:
    site.logdir.set_active_run("j/s")
    site.come()
    site.parser.end()
    site.path.unlink()
    for _ in range(3):
        assert site.logdir.open(site.span) is None
        site.wanted.pop()(DOWN)
        assert (site.span.state, site.span.summary) == ("ready", SUMMARY), "as often as it takes"
    assert site.logdir.open(site.span) is None
    site.come()
    assert len(site.parser.waiting) == 1


def test_a_copy_deleted_before_it_is_read_is_fetched_again(site: Site) -> None:
    site.logdir.set_active_run("j/s")
    site.come()
    site.path.unlink()
    site.parser.end(Failure("No such file", "", kind="SourceError"))
    assert (site.span.state, len(site.wanted)) == ("waiting", 1)


def test_earlier_findings_are_kept_until_the_files_are_listed(site: Site, tmp_path: Path) -> None:
    site.logdir.set_active_run("j/s")
    site.come()
    site.parser.end()
    site.path.unlink()
    site.known = False
    site.begin(tmp_path)
    assert site.logdir.listing().runs == ()
    site.known = True
    site.logdir.rescan()
    assert (site.span.state, site.span.summary, site.wanted) == ("ready", SUMMARY, [])


def test_a_later_result_is_fetched_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.logdir.set_active_run("j/s")
    site.come()
    site.parser.end()
    site.path.unlink()
    [file] = site.files() or []
    later = LogFile(
        path=file.path,
        file=file.file,
        root=file.root,
        folder=file.folder,
        name=file.name,
        version=Version(3, 2 * 10**18, 0),
        verdict=file.verdict,
    )
    monkeypatch.setattr(site, "files", lambda: [later])
    site.logdir.rescan()
    assert (site.span.state, site.span.summary) == ("waiting", None)
    site.logdir.set_active_run("j/s")
    assert len(site.wanted) == 1


def test_reading_a_missing_copy_reports_the_reason(site: Site) -> None:
    with pytest.raises(NotReady, match="does not answer"):
        site.logdir.ensure_local(os.fspath(site.path))
