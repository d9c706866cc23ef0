"""Safe access to folders that a child may have written.

A hostile child can plant links, pipes and odd names to lead the agent astray.
"""

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
    """Open a file for reading. Links are rejected, and a pipe does not block.

    Raises:
        OSError: The file cannot be opened, or it is a link.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb")


def is_regular(path: Path) -> bool:
    """Return whether the path is a regular file and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def regular_file_inside(folder: Path, name: str) -> Path | None:
    """Return the regular file with this name below a folder; `None` if it is missing or the name leads out of it."""
    path = folder / name
    try:
        is_below = path.parent.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return None
    return path if is_below and is_regular(path) else None


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield files, links and other entries below a folder, sorted: at most 10,000 entries, 8 folders deep."""
    pending, remaining = [(folder, 0)], MAX_ENTRIES
    while pending and remaining > 0:
        parent, depth = pending.pop(0)
        with suppress(OSError), os.scandir(parent) as entries:
            batch = sorted(islice(entries, remaining), key=lambda entry: entry.name)
            remaining -= len(batch)
            for entry in batch:
                if not entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
                elif depth < MAX_DEPTH:
                    pending.append((Path(entry.path), depth + 1))


def remove_folder(folder: Path) -> None:
    """Remove a folder that a child has filled, even without permissions or nested deeper than Python can follow."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf", "--"]):
            subprocess.run([*command, str(folder)], capture_output=True, check=False)


def remove_path(path: Path) -> None:
    """Remove whatever has this path. A link is removed, not its target."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    with suppress(FileNotFoundError):
        path.unlink()


def link_or_copy(file: Path, target: Path) -> None:
    """Make a file available under another path: as a hard link, or as a copy across file systems."""
    remove_path(target)
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with open_regular(path) as file:
        return stream_sha256(file)


def stream_sha256(file: BinaryIO) -> str:
    """Return the SHA-256 of the rest of an open file, in hex."""
    sha256 = hashlib.sha256()
    while block := file.read(BLOCK_BYTES):
        sha256.update(block)
    return sha256.hexdigest()


def free_bytes(folder: Path) -> int:
    """Return the free space on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
