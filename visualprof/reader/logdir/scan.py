"""Find files below the log directories that may be profiles: walk the folders and examine each head."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from visualprof.errors import EmptyFile, SourceError, UnknownFormat
from visualprof.messages import msg
from visualprof.reader.ascend.folder import is_part_of_recording
from visualprof.reader.foreign_files import describe, is_serving_result
from visualprof.reader.foreign_recordings import foreign_folder
from visualprof.reader.graph_capture.files import captures_stamp, is_attached_capture, recordings_stamp
from visualprof.reader.logdir.entry_count import EntryCount
from visualprof.reader.logdir.layout import NO_RANK, StatedRank
from visualprof.reader.memory_snapshot.recordings import is_snapshot_name, relevant_names
from visualprof.reader.models import model_suffixes, recognize_model
from visualprof.reader.recognition import recognize
from visualprof.reader.registry import LEADING_BLANKS, is_json, may_be_profile, profile_suffixes, unknown_profile
from visualprof.reader.run_data.folders import is_data_name
from visualprof.reader.source import GROWING_HINT, HEAD_BYTES, Source

_log = logging.getLogger(__name__)

DISTRIBUTED_INFO_BYTES = 4096  # in which torch writes rank and world size, before the lists of process groups
# Read from every file; more is only read if the file starts like a profile or has a profile's name.
GLANCE_BYTES = 512

_UNFINISHED_SUFFIXES = (".partial", ".tmp", ".part", ".crdownload", ".swp", "~")
_PROFILE_NAME = re.compile(
    r"\.(json|trace|prof|profile|pftrace|perfetto-trace|paddle_trace\.pb|xplane\.pb)(\.gz)?$", re.IGNORECASE
)
_OTHER_NAME = re.compile(
    r"\.(py|pyc|ipynb|sh|md|rst|txt|log|out|err|csv|tsv|jsonl|yaml|yml|toml|ini|cfg|lock|html|css|js|map|ts|svg|png|jpe?g"
    r"|gif|pdf|pt|pth|ckpt|bin|npy|npz|onnx|mge|pdmodel|pdiparams|safetensors|h5|pkl|tar|tgz|zip|whl|so|o|a|mp4|parquet"
    r"|tflite|arrow|db|sqlite|tar\.gz|svg\.gz|log\.gz|txt\.gz|csv\.gz|tsv\.gz|bin\.gz|npy\.gz|ubyte\.gz)$",
    re.IGNORECASE,
)
# Result files that jobs, cases, advice and searches write next to their profiles: JSON that is not reported.
RESULT_JSON = frozenset({"job.json", "env.json", "status.json", "advice.json", "search.json", "case.json"})
_CASE_STEP = re.compile(r"(^|/)steps/\d+\.json$")  # the record of a step of a case
_OWN_FILES = frozenset({"jobs.sqlite"})  # of a server whose log directory is also its store
# Folder through which processes of a run report their state and receive requests.
LIVE_FOLDER = ".live"
STEP_TIMES_SUFFIX = ".steps.bin"


class Root(msgspec.Struct, frozen=True):
    """A log directory.

    Attributes:
        path: The folder or file.
        prefix: Prefix of its runs, "" if it is the only log directory.
        address: The address of which the folder has copies, "" for a local one.
    """

    path: Path
    prefix: str
    address: str = ""

    def run_id(self, path: str) -> str:
        """Return the id of a run, given its path below the root, "." for the root itself."""
        return f"{self.prefix}/{path}" if self.prefix and path != "." else self.prefix or path


class Version(msgspec.Struct, frozen=True):
    """Changes when the content of a file may have changed.

    `captures` covers the files that are read with it: capture traces, or the recordings of a memory snapshot.
    """

    size: int
    mtime_ns: int
    inode: int
    captures: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """The kind of a file.

    Attributes:
        kind: One of:
            - profile: a profile of `format`.
            - growing: too short to decide.
            - skipped: looks like a profile, but is not one.
            - other: not reported.
        format: Id of the format.
        error: Why a file is skipped or growing.
        hint: What to do about it.
        rank: The rank that a profile states.
    """

    kind: Literal["profile", "growing", "skipped", "other"]
    format: str = ""
    error: str = ""
    hint: str = ""
    rank: StatedRank = NO_RANK


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file.

    Attributes:
        path: Its path.
        file: Its unique name for users.
        root: Its log directory.
        folder: Its folder below the root, with `/`.
        name: Its name.
        version: Its version.
        verdict: Kind of a remote file, which may have no local copy; its format may be that of a model. `None` for a
            local file.
    """

    path: str
    file: str
    root: Root
    folder: str
    name: str
    version: Version
    verdict: Verdict | None = None


class LiveFolder(msgspec.Struct, frozen=True):
    """The `.live` folder of a folder, by its real path below the root.

    `modified_ns` is the time of its parent folder.
    """

    path: str
    root: Root
    folder: str
    modified_ns: int


class Problem(msgspec.Struct, frozen=True):
    """A file or folder that is not shown, and why."""

    file: str
    error: str
    hint: str


def roots(paths: Sequence[str | Path]) -> list[Root]:
    """Return the log directories. Several log directories get their own names as prefixes."""
    distinct = list(dict.fromkeys(Path(p).expanduser().absolute() for p in paths))
    if len(distinct) == 1:
        return [Root(distinct[0], "")]
    names: dict[str, Path] = {}
    for path in distinct:
        name, number = path.name or "root", 2
        while name in names:
            name, number = f"{path.name}-{number}", number + 1
        names[name] = path
    return [Root(path, name) for name, path in names.items()]


_OUTSIDE_LINK = msg("logdir.link_leads_out_log", "this link leads out of the log directory")
_OUTSIDE_LINK_HINT = msg(
    "logdir.copy_target_or_follow_links",
    "copy its target, name the target as a log directory, or start the server with --follow-links",
)


def walk(
    root: Root, *, follow_outside: bool = False, others: Sequence[Root] = ()
) -> Iterator[LogFile | LiveFolder | Problem]:
    """Yield every regular file below a root, except hidden and unfinished ones; each folder once, whatever the links.

    The only hidden folders yielded are those of live runs, and only if they are really below the root, because requests
    are written there.

    Args:
        root: The log directory.
        follow_outside: Also follow links out of the log directories. Otherwise each is a problem.
        others: The other log directories, to which links may lead.
    """
    if root.path.is_file():
        captures = _attached_stamp(str(root.path), None, captures_stamp(str(root.path.parent)))
        yield _log_file(root, "", display_name(root.path.name), str(root.path), root.path.stat(), captures)
        return
    seen: set[tuple[int, int]] = set()
    entries = EntryCount()
    # Linked folders come last, so that a folder that is reached twice gets its real name.
    plain, linked = [(str(root.path), "")], list[tuple[str, str]]()
    while plain or linked:
        path, folder = plain.pop() if plain else linked.pop()
        try:
            folder_status = os.stat(path)
            if (folder_status.st_dev, folder_status.st_ino) in seen:
                continue
            seen.add((folder_status.st_dev, folder_status.st_ino))
            children = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            text = msg("logdir.cannot_read_folder", f"cannot read this folder: {error.strerror}")
            yield Problem(_user_path(root, folder) or str(root.path), text, "")
            continue
        other_names = [child.name for child in children if not is_run_data(child.name)]
        captures, names = (captures_stamp(path), relevant_names(other_names)) if other_names else (0, [])
        entries.add(len(children), len(other_names))
        if limit := entries.exceeded():
            text = msg("logdir.over_files_rest_not", f"over {limit:,} files: the rest is not scanned")
            yield Problem(
                _user_path(root, folder), text, msg("logdir.name_folder_further_down", "name a folder further down")
            )
            return
        foreign = _foreign_folder_problems(root, path, folder, children)
        yield from foreign
        for child in [] if foreign else children:
            if child.name.startswith(".") or child.name.endswith(_UNFINISHED_SUFFIXES):
                yield from _live_folder(root, folder, child, folder_status.st_mtime_ns)
                continue
            name = display_name(child.name)
            relative = f"{folder}/{name}" if folder else name
            if not follow_outside and child.is_symlink() and not _resolves_below((root, *others), child.path):
                yield Problem(_user_path(root, relative), _OUTSIDE_LINK, _OUTSIDE_LINK_HINT)
                continue
            try:
                status = child.stat()
                if stat.S_ISDIR(status.st_mode):
                    (linked if child.is_symlink() else plain).append((child.path, relative))
                elif stat.S_ISREG(status.st_mode):
                    stamp = _attached_stamp(child.path, names, captures)
                    yield _log_file(root, folder, name, child.path, status, stamp)
            except OSError:  # a dangling link, a loop, or deleted since it was listed
                continue


def _foreign_folder_problems(root: Root, path: str, folder: str, children: Sequence[os.DirEntry[str]]) -> list[Problem]:
    """Return the problem with a folder that is a recording of another profiler, if it is one."""
    kind = foreign_folder(os.path.basename(path), {child.name for child in children})
    if kind is None:
        return []
    text = msg("reader.folder_is", f"this folder is {kind.text}")
    return [Problem(_user_path(root, folder) or root.path.name, text, kind.hint)]


def _live_folder(root: Root, folder: str, child: os.DirEntry[str], modified_ns: int) -> Iterator[LiveFolder]:
    if child.name == LIVE_FOLDER and is_real_subfolder(root, child.path):
        yield LiveFolder(child.path, root, folder, modified_ns)


def is_real_subfolder(root: Root, path: str) -> bool:
    """Return whether the path is a folder below the root that is not reached through a link."""
    real = root.path.resolve() / Path(path).relative_to(root.path)
    return os.path.isdir(path) and os.path.realpath(path) == str(real)


def _resolves_below(log_directories: Sequence[Root], path: str) -> bool:
    """Return whether a path, with links resolved, is below a log directory."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(root.path)) for root in log_directories)


def is_run_data(name: str) -> bool:
    """Return whether a file is read as run data, by its name, and is not examined."""
    return is_data_name(name) and not _PROFILE_NAME.search(name)


def display_name(name: str) -> str:
    r"""Return the name of a file or folder as users see and send it; bytes that are not UTF-8 become `\xff`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _attached_stamp(path: str, names: Sequence[str] | None, captures: int) -> int:
    """Return a number that changes with the files that are read with a file.

    Args:
        path: The file.
        names: The relevant names in its folder; `None` to list the folder.
        captures: The number of the folder's captures.
    """
    return recordings_stamp(path, names) if is_snapshot_name(os.path.basename(path)) else captures


def _log_file(root: Root, folder: str, name: str, path: str, status: os.stat_result, captures: int) -> LogFile:
    version = Version(status.st_size, status.st_mtime_ns, status.st_ino, captures)
    return LogFile(
        path=path,
        file=_user_path(root, f"{folder}/{name}" if folder else name),
        root=root,
        folder=folder,
        name=name,
        version=version,
    )


def _user_path(root: Root, relative: str) -> str:
    return "/".join(part for part in (root.prefix, relative) if part)


def examine(file: LogFile) -> Verdict:
    """Return the kind of a file, by its content. Its name only decides whether an unknown file is reported."""
    source = Source(file.path)
    has_profile_name = _has_profile_name(file)
    if file.version.size == 0:
        return (
            Verdict("growing", "", msg("logdir.empty", f"{file.name} is empty"), GROWING_HINT)
            if has_profile_name
            else Verdict("other")
        )
    if (
        _is_viewer_extract(file)
        or is_part_of_recording(file.path)
        or is_attached_capture(file.path, str(file.root.path))
    ):
        return Verdict("other")
    try:
        if not (has_profile_name or may_be_profile(glance := source.head(GLANCE_BYTES))):
            return _mistake(file, source, glance) or Verdict("other")
        return Verdict("profile", recognize(source).name, rank=_stated_rank(source))
    except EmptyFile as error:
        return Verdict("other") if _is_result_json(file) else Verdict("growing", "", error.error, error.hint)
    except UnknownFormat as error:
        if has_profile_name and _is_truncated_json(source):
            return Verdict(
                "growing",
                "",
                msg(
                    "logdir.ends_middle_before_says",
                    f"{file.name} ends in the middle, before its format can be recognized",
                ),
                GROWING_HINT,
            )
        if _OTHER_NAME.search(file.name):
            return _mistake(file, source, source.head()) or Verdict("other")
        return _unrecognized(file, error.error, error.hint)
    except SourceError as error:
        return _unrecognized(file, error.error, error.hint)
    except Exception as error:  # noqa: BLE001 - a head that crashes a format must not hide the other files
        _log.exception("looking at %s", file.path)
        problem = msg("logdir.reader_failed", f"the reader failed ({type(error).__name__}: {error})")
        return _unrecognized(file, problem, msg("logdir.please_report_file", "please report it with the file"))


def _stated_rank(source: Source) -> StatedRank:
    """Return the rank in the head of a file that torch or a library on top of it wrote."""
    head = source.head()
    position = head.find(b'"distributedInfo"')
    if position < 0:
        return NO_RANK
    info = head[position : position + DISTRIBUTED_INFO_BYTES]
    rank, size = (re.search(rb'"%s"\s*:\s*"?(\d{1,7})\b' % key, info) for key in (b"rank", b"world_size"))
    return StatedRank(int(rank[1]), int(size[1])) if rank and size else NO_RANK


def _is_viewer_extract(file: LogFile) -> bool:
    """Return whether this is the extract that XLA's profiler writes for other viewers: the first million events."""
    stem, has_suffix, _ = file.path.partition(".trace.json")
    return bool(has_suffix) and os.path.exists(f"{stem}.xplane.pb")


def _unrecognized(file: LogFile, error: str, hint: str) -> Verdict:
    if _is_result_json(file) or _OTHER_NAME.search(file.name) or _is_model(file) or _is_serving_result(file):
        return Verdict("other")
    return Verdict("skipped", "", error, hint)


def _mistake(file: LogFile, source: Source, head: bytes) -> Verdict | None:
    """Return the verdict on a file that has no name of a profile, but takes the place of one or may hold one."""
    found = None if file.name in _OWN_FILES else describe(file.name, head)
    if found is None or not (found.is_mistake or found.may_be_recording):
        return None
    is_expected = not _OTHER_NAME.search(file.name) or file.name.lower().endswith(model_suffixes())
    if not (found.may_be_recording or is_expected):
        return None
    error = unknown_profile(file.name, source.head())
    return Verdict("skipped", "", error.error, error.hint)


def _is_model(file: LogFile) -> bool:
    try:
        return recognize_model(Source(file.path)) is not None
    except SourceError:
        return False


def _is_serving_result(file: LogFile) -> bool:
    try:
        return is_serving_result(Source(file.path).head())
    except SourceError:
        return False


def _has_profile_name(file: LogFile) -> bool:
    named = _PROFILE_NAME.search(file.name) or file.name.lower().endswith(profile_suffixes())
    return bool(named) and not _is_result_json(file)


def _is_result_json(file: LogFile) -> bool:
    is_manifest = file.name == "Manifest.json" and Path(file.path).parent.suffix == ".mlpackage"  # of Core ML
    return is_manifest or file.name in RESULT_JSON or bool(_CASE_STEP.search(f"{file.folder}/{file.name}"))


def _is_truncated_json(source: Source) -> bool:
    """Return whether the file starts like JSON, but does not end."""
    head = source.head()
    return len(head) < HEAD_BYTES and is_json(head) and head.rstrip(LEADING_BLANKS)[-1:] not in (b"}", b"]")
