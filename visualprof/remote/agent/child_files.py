"""Files in folders that a child may have written: it can plant links, pipes and names to lead the agent astray."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 1 << 18
MAX_ENTRIES = 10_000
MAX_DEPTH = 8


def open_regular(path: Path) -> BinaryIO:
    """A file for reading; a link is refused, and a pipe does not block. Raises: OSError."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb")


def is_regular(path: Path) -> bool:
    """Whether it is a file itself, not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def regular_file_inside(folder: Path, name: str) -> Path | None:
    """The plain file of that name below a folder, None when it is not one or leads out of it."""
    path = folder / name
    try:
        below = path.parent.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return None
    return path if below and is_regular(path) else None


def walk_files(folder: Path) -> Iterator[Path]:
    """Files, links and the like below a folder, sorted; at most 10,000 entries, 8 folders deep."""
    waiting, left = [(folder, 0)], MAX_ENTRIES
    while waiting and left > 0:
        parent, depth = waiting.pop(0)
        with suppress(OSError), os.scandir(parent) as entries:
            some = sorted(islice(entries, left), key=lambda entry: entry.name)
            left -= len(some)
            for entry in some:
                if not entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
                elif depth < MAX_DEPTH:
                    waiting.append((Path(entry.path), depth + 1))


def remove_folder(folder: Path) -> None:
    """Remove a folder that a child has filled, also one without permissions, or deeper than Python can follow."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf", "--"]):
            subprocess.run([*command, str(folder)], capture_output=True, check=False)


def remove_path(path: Path) -> None:
    """Removes whatever has that name; a link is removed, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    with suppress(FileNotFoundError):
        path.unlink()


def link_or_copy(file: Path, target: Path) -> None:
    """Make a file appear under another name too: a hard link, or a copy across file systems."""
    remove_path(target)
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with open_regular(path) as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO) -> str:
    """The sha256 of what follows in a file, in hex."""
    sha256 = hashlib.sha256()
    while block := file.read(BLOCK_BYTES):
        sha256.update(block)
    return sha256.hexdigest()


def free_bytes(folder: Path) -> int:
    """Room on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
