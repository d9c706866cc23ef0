"""Unpack an uploaded zip in a separate process with limits. The server itself reads only the unpacked files."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader import child
from visualprof.reader.source import Progress
from visualprof.remote.queue.check import zips
from visualprof.remote.queue.check.inspect import InspectedArray, inspect_array, safe_name
from visualprof.remote.queue.errors import disk_errors

_BYTES_PER_S = 4 << 20  # a zip may hold gigabytes, which take a while to unpack
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class UnpackedFile:
    """A file of a zip.

    Attributes:
        name: Its path in the zip.
        path: The unpacked file.
        content: The array that it holds, if it is one.
    """

    name: str
    path: Path
    content: InspectedArray | None = None


@dataclass(frozen=True)
class UnpackedZip:
    """The files of a zip with arrays, or the model in a zip. No files: the zip itself is a model, or is no zip.

    Attributes:
        files: The arrays, or the model.
        weights: Names of further files next to the model.
    """

    files: list[UnpackedFile]
    weights: list[str]


def unpack_zip(path: Path, name: str, folder: Path) -> UnpackedZip:
    """Return the arrays in a zip, or the model in a zip.

    Args:
        path: The zip, or any other file.
        name: Name of the zip in error messages.
        folder: An empty folder for the unpacked files. The caller deletes it.

    Raises:
        FormatError: The zip is damaged or dangerous, contains several models, or exceeds a limit.
        DiskFull: The unpacked files do not fit on the disk.
    """
    if not zips.is_zip(path):
        return UnpackedZip([], [])
    return child.run_in_child(partial(_unpack, name=name, folder=folder), path, name, _limits(path))


def unpack_members(path: Path, name: str, members: Sequence[str], folder: Path) -> list[UnpackedFile]:
    """Return some files of a zip.

    Args:
        path: The zip.
        name: Name of the zip in error messages.
        members: Names of the files.
        folder: A folder for the unpacked files. The caller deletes it.

    Raises:
        FormatError: A file is damaged, or unpacking exceeds a limit.
        DiskFull: The unpacked files do not fit on the disk.
    """
    task = partial(_unpack_members, name=name, members=members, folder=folder)
    return child.run_in_child(task, path, name, _limits(path)) if members else []


def _limits(path: Path) -> child.Limits:
    limits = child.MODEL_LIMITS
    seconds = round(limits.timeout_s + path.stat().st_size / _BYTES_PER_S, 1)
    return child.Limits(seconds, limits.base_bytes, limits.bytes_per_byte)


def _unpack(path: str, progress: Progress, *, name: str, folder: Path) -> UnpackedZip:
    """Unpack the arrays or the model, in the separate process."""
    names = zips.list_members(Path(path), name)
    if names and all(member.endswith(".npy") for member in names):
        files = _unpack_members(path, progress, name=name, members=names, folder=folder)
        contents = [inspect_array(file.path, safe_name(file.name)) for file in files]
        return UnpackedZip(
            [UnpackedFile(file.name, file.path, content) for file, content in zip(files, contents, strict=True)], []
        )
    models = [member for member in names if member.lower().endswith((".onnx", "saved_model.pb"))]
    if len(models) > 1:
        raise FormatError(
            msg("queue.models_archive", f"{name}: {len(models)} models in the archive"),
            msg("queue.one_model_zip_weights", "one model in a zip, with its weights"),
        )
    if not models:
        return UnpackedZip([], [])
    above = models[0].rpartition("/")[0]
    weights = [member for member in names if member not in models and member.startswith(above)]
    return UnpackedZip(_unpack_members(path, progress, name=name, members=models, folder=folder), weights)


def _unpack_members(
    path: str, progress: Progress, *, name: str, members: Sequence[str], folder: Path
) -> list[UnpackedFile]:
    """Unpack files under numbers as names, in the separate process."""
    del progress  # not reported
    files: list[UnpackedFile] = []
    with zips.zip_errors(name), zipfile.ZipFile(path) as archive:
        for number, member in enumerate(members):
            target = folder / str(number)
            with (
                zips.zip_errors(safe_name(member)),
                archive.open(member) as file,
                disk_errors(name),
                target.open("wb") as out,
            ):
                shutil.copyfileobj(file, out, _COPY_BYTES)
            files.append(UnpackedFile(member, target))
    return files
