"""Which files below the log directories may be profiles: a walk, and a look at each head."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visualprof.errors import EmptyFile, SourceError, UnknownFormat
from visualprof.reader.registry import BLANK, is_json, may_be_profile, profile_suffixes, recognise
from visualprof.reader.source import HEAD_BYTES, Source

_log = logging.getLogger(__name__)

# A dataset by mistake below a log directory must not keep the scanner busy for minutes.
MAX_ENTRIES = 200_000
# Read of every file; more only of those that begin like a profile or are named like one.
GLANCE_BYTES = 512

_UNFINISHED = (".partial", ".tmp", ".part", ".crdownload", ".swp", "~")
_PROFILE_NAME = re.compile(
    r"\.(json|trace|prof|profile|pftrace|perfetto-trace|paddle_trace\.pb|xplane\.pb)(\.gz)?$", re.IGNORECASE
)
_OTHER_NAME = re.compile(
    r"\.(py|pyc|ipynb|sh|md|rst|txt|log|out|err|csv|tsv|jsonl|yaml|yml|toml|ini|cfg|lock|html|css|js|map|ts|svg|png|jpe?g"
    r"|gif|pdf|pt|pth|ckpt|bin|npy|npz|onnx|mge|pdmodel|pdiparams|safetensors|h5|pkl|tar|tgz|zip|whl|so|o|a|mp4|parquet"
    r"|arrow|db|sqlite|tar\.gz|svg\.gz|log\.gz|txt\.gz|csv\.gz|tsv\.gz|bin\.gz|npy\.gz|ubyte\.gz)$",
    re.IGNORECASE,
)
# What a remote run leaves beside its profiles: JSON that is not worth a word.
_RESULT_NAMES = frozenset({"job.json", "env.json", "status.json"})


@dataclass(frozen=True)
class Root:
    """A log directory. prefix: what stands before its runs, "" when it is the only one."""

    path: Path
    prefix: str


@dataclass(frozen=True)
class Version:
    """Differs when the content of a file may differ."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Found:
    """A file. file: how it is called towards users, unique; folder: below its root, with `/`."""

    path: str
    file: str
    root: Root
    folder: str
    name: str
    version: Version


@dataclass(frozen=True)
class Problem:
    """A file or folder that is not shown, and why."""

    file: str
    error: str
    hint: str


@dataclass(frozen=True)
class Verdict:
    """profile: of `format`. growing: too short to say. skipped: looks like one, is none. other: never mentioned."""

    kind: Literal["profile", "growing", "skipped", "other"]
    format: str = ""
    error: str = ""
    hint: str = ""


def roots(paths: Sequence[str | Path]) -> list[Root]:
    """The log directories; with more than one, each gets its own name as prefix."""
    whole = list(dict.fromkeys(Path(p).expanduser().absolute() for p in paths))
    if len(whole) == 1:
        return [Root(whole[0], "")]
    names: dict[str, Path] = {}
    for path in whole:
        name, number = path.name or "root", 2
        while name in names:
            name, number = f"{path.name}-{number}", number + 1
        names[name] = path
    return [Root(path, name) for name, path in names.items()]


def walk(root: Root) -> Iterator[Found | Problem]:
    """Every regular file below a root, but nothing hidden or unfinished; each folder once, whatever the links."""
    if root.path.is_file():
        yield _found(root, "", root.path.name, str(root.path), root.path.stat())
        return
    seen: set[tuple[int, int]] = set()
    entries = 0
    # Linked folders come last: where one folder is reached twice, its real name wins.
    plain, linked = [(str(root.path), "")], list[tuple[str, str]]()
    while plain or linked:
        path, folder = plain.pop() if plain else linked.pop()
        try:
            status = Path(path).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            children = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            yield Problem(_shown(root, folder) or str(root.path), f"cannot read this folder: {error.strerror}", "")
            continue
        entries += len(children)
        if entries > MAX_ENTRIES:
            yield Problem(
                _shown(root, folder), f"over {MAX_ENTRIES:,} files: the rest is not looked at", "point --logdir deeper"
            )
            return
        for child in children:
            if child.name.startswith(".") or child.name.endswith(_UNFINISHED):
                continue
            below = f"{folder}/{child.name}" if folder else child.name
            try:
                status = child.stat()
                if stat.S_ISDIR(status.st_mode):
                    (linked if child.is_symlink() else plain).append((child.path, below))
                elif stat.S_ISREG(status.st_mode):
                    yield _found(root, folder, child.name, child.path, status)
            except OSError:  # a dangling link, a loop, or gone since it was listed
                continue


def _found(root: Root, folder: str, name: str, path: str, status: os.stat_result) -> Found:
    version = Version(status.st_size, status.st_mtime_ns, status.st_ino)
    return Found(path, _shown(root, f"{folder}/{name}" if folder else name), root, folder, name, version)


def _shown(root: Root, below: str) -> str:
    return "/".join(part for part in (root.prefix, below) if part)


def examine(found: Found) -> Verdict:
    """What a file is, by its content; its name only decides whether a stranger is worth a mention."""
    source = Source(found.path)
    if found.version.size == 0:
        return _growing(found, "is empty") if _named_like_profile(found) else Verdict("other")
    try:
        if not (_named_like_profile(found) or may_be_profile(source.head(GLANCE_BYTES))):
            return Verdict("other")
        return Verdict("profile", recognise(source).name)
    except EmptyFile as error:
        if found.name in _RESULT_NAMES:
            return Verdict("other")
        return Verdict("growing", "", error.error, error.hint)
    except UnknownFormat as error:
        if _named_like_profile(found) and _cut_short(source):
            return _growing(found, "is too short to be recognised")
        return _stranger(found, error.error, error.hint)
    except SourceError as error:
        return _stranger(found, error.error, error.hint)
    except Exception as error:  # noqa: BLE001 - a head that trips a format must not hide the other files
        _log.exception("looking at %s", found.path)
        return _stranger(
            found, f"the reader failed ({type(error).__name__}: {error})", "please report it with the file"
        )


def _growing(found: Found, what: str) -> Verdict:
    hint = "it may still be being written; it opens by itself once complete"
    return Verdict("growing", "", f"{found.name} {what}", hint)


def _stranger(found: Found, error: str, hint: str) -> Verdict:
    if found.name in _RESULT_NAMES or _OTHER_NAME.search(found.name):
        return Verdict("other")
    return Verdict("skipped", "", error, hint)


def _named_like_profile(found: Found) -> bool:
    named = _PROFILE_NAME.search(found.name) or found.name.lower().endswith(profile_suffixes())
    return bool(named) and found.name not in _RESULT_NAMES


def _cut_short(source: Source) -> bool:
    """Does it begin like JSON, without the end?"""
    head = source.head()
    return len(head) < HEAD_BYTES and is_json(head) and head.rstrip(BLANK)[-1:] not in (b"}", b"]")
