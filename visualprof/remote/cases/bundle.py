"""Pack a case into one file for an agent: a zip of its files, its data, and `case.json`, which describes it.

Users upload a zip of a case's folder or of a FlagPerf tree.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any, cast

from visualprof.messages import msg
from visualprof.remote.cases.content_errors import content_errors
from visualprof.remote.cases.folder import MAX_BYTES, MAX_FILES, Case, read_case
from visualprof.remote.protocol import TaskFailure

DESCRIPTION = "case.json"
SUFFIX = ".case.zip"
MAX_UNPACKED_RATIO, ALWAYS_ALLOWED_BYTES = 50, 64 << 20  # unpacked size divided by packed size
SKIPPED_FOLDERS = ("__MACOSX/",)
MAX_NAME_BYTES, MAX_DEPTH = 200, 12  # of each part of a path, and its number of parts
_PLAIN = re.compile(r"[^\x00-\x1f\\:*?\"<>|/]{1,150}")


def bundle_files(case: Case, data: Path | None = None) -> dict[str, Path]:
    """Return every file of the bundle by its path. `data/` holds the case's data, or the given folder instead."""
    folder = data or case.data_dir
    files = dict(case.files)
    for file in sorted(folder.rglob("*")) if folder else []:
        if file.is_symlink():
            raise TaskFailure(
                "input_error",
                msg("cases.link", f"{file} is a link"),
                msg("cases.data_travels_files", "replace links in the data by files"),
            )
        if file.is_file():
            files[f"data/{file.relative_to(folder).as_posix()}"] = file  # pyright: ignore[reportArgumentType]
    return files


def pack(case: Case, target: Path, data: Path | None = None) -> None:
    """Write the bundle.

    Raises:
        TaskFailure: The case is too large or contains a link.
    """
    files = bundle_files(case, data)
    if len(files) > MAX_FILES or sum(file.stat().st_size for file in files.values()) > MAX_BYTES:
        error = msg(
            "cases.more_than_files_gib",
            f"{case.name} has more than {MAX_FILES:,} files or {MAX_BYTES >> 30} GiB with its data",
        )
        raise TaskFailure(
            "input_error", error, msg("cases.smaller_set_data_agent", "choose a smaller data set with --data")
        )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(DESCRIPTION), json.dumps(case.description()))
        for place, file in files.items():
            info = zipfile.ZipInfo(
                place, (2020, 1, 1, 0, 0, 0)
            )  # a fixed time, so that the same case gives the same file
            info.compress_type = zipfile.ZIP_DEFLATED
            with file.open("rb") as source, archive.open(info, "w") as out:
                shutil.copyfileobj(source, out, 1 << 20)


def unpack(packed: Path, folder: Path) -> dict[str, Any]:
    """Extract a bundle into an empty folder, and return its description.

    Raises:
        TaskFailure: input_error: The file is not a bundle, or `extract` fails.
    """
    extract(packed, folder)
    if not (folder / DESCRIPTION).is_file():
        raise TaskFailure(
            "input_error", msg("cases.no_bundle_case_no", "this is not a bundle of a case: it has no case.json")
        )
    return parse_description((folder / DESCRIPTION).read_bytes())


def read_uploaded_case(packed: Path, name: str, folder: Path) -> Case:
    """Return the case in a zip of its folder, or of the folder's contents.

    Args:
        packed: The zip.
        name: Name of the file.
        folder: An empty folder for the extracted files.

    Raises:
        TaskFailure: input_error: The zip has no case, or `extract` fails.
    """
    root = folder / (re.sub(r"\W+", "_", Path(name[:MAX_NAME_BYTES]).stem, flags=re.ASCII)[:80] or "case")
    try:
        with content_errors(
            msg("cases.upload_no_case", "this case cannot be read"),
            msg("cases.pack_folder_case_anew", "pack the folder of the case again"),
        ):
            extract(packed, root)
            entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
            several = len(entries) > 1 or not entries or not entries[0].is_dir()
            return read_case(root if several or entries[0].name == "inference" else entries[0])
    except TaskFailure as failure:
        error, hint = (_without_folder(text, folder) for text in (failure.error, failure.hint))
        raise TaskFailure(failure.reason, error, hint) from None


def _without_folder(text: str, folder: Path) -> str:
    """Return a message with paths relative to the folder: it lies on the server, which senders know nothing about."""
    for path in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
        text = text.replace(f"{path}/", "").replace(path, "")
    return text


def extract(packed: Path, folder: Path) -> None:
    """Extract a zip into a folder.

    Raises:
        TaskFailure: input_error: The file is not a zip, or has paths outside of the folder, links, or too much data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (
        content_errors(
            msg("cases.zip_cannot_be_read", "this zip cannot be read"),
            msg("cases.pack_folder_case_anew", "pack the folder of the case again"),
        ),
        zipfile.ZipFile(packed) as archive,
    ):
        entries = [
            entry_info for entry_info in archive.infolist() if not entry_info.filename.startswith(SKIPPED_FOLDERS)
        ]
        _check(entries, packed.stat().st_size)
        for entry in entries:
            if not entry.is_dir():
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                _extract(archive, entry, target)


def parse_description(data: bytes) -> dict[str, Any]:
    """Return the contents of `case.json`.

    Raises:
        TaskFailure: The contents are invalid.
    """
    try:
        content: object = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise TaskFailure("input_error", msg("cases.case_json_not_describe", "case.json does not describe a case"))
    described = cast("dict[str, Any]", content)
    kinds = {"name": str, "frameworks": list, "case": dict, "parameters": dict, "vendors": dict, "requirements": dict}
    for key, kind in kinds.items():
        if not isinstance(described.get(key), kind):
            raise TaskFailure(
                "input_error",
                msg("cases.case_json_missing_another", f"case.json: {key} is missing or has the wrong type"),
            )
    return described


def _check(entries: list[zipfile.ZipInfo], packed_bytes: int) -> None:
    names = [entry.filename for entry in entries]
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_FILES + 1 or unpacked > max(
        ALWAYS_ALLOWED_BYTES, min(MAX_BYTES, MAX_UNPACKED_RATIO * packed_bytes)
    ):
        raise TaskFailure(
            "input_error",
            msg(
                "cases.zip_unpacks_bytes_files",
                f"the zip unpacks to {unpacked:,} bytes in {len(entries):,} files: a zip bomb?",
            ),
        )
    if len({name.casefold() for name in names}) < len(names):
        raise TaskFailure("input_error", msg("cases.zip_file_twice", "the zip has two files of the same name"))
    files = {entry.filename.casefold() for entry in entries if not entry.is_dir()}
    folders = {name[:end] for name in map(str.casefold, names) for end, c in enumerate(name) if c == "/"}
    if clash := sorted(files & folders):
        raise TaskFailure(
            "input_error",
            msg("cases.zip_file_and_folder", f"{clash[0][:80]!r} in the zip is both a file and a folder"),
        )
    for entry in entries:
        parts = entry.filename.rstrip("/").split("/")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        plain = all(_PLAIN.fullmatch(part) and part not in (".", "..") for part in parts)
        if any(len(part.encode("utf-8", "replace")) > MAX_NAME_BYTES for part in parts):
            raise TaskFailure(
                "input_error",
                msg(
                    "cases.zip_long_name",
                    f"{entry.filename[:80]!r} in the zip has a name of over {MAX_NAME_BYTES} bytes",
                ),
            )
        if not plain or len(parts) > MAX_DEPTH or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise TaskFailure(
                "input_error",
                msg(
                    "cases.zip_leads_out_no",
                    f"{entry.filename[:80]!r} in the zip is outside of the folder or not a regular file",
                ),
            )


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    """Extract one file of at most the size that its entry declares."""
    remaining = entry.file_size
    with archive.open(entry) as source, target.open("xb") as out:
        while chunk := source.read(1 << 20):
            remaining -= len(chunk)
            if remaining < 0:
                raise TaskFailure(
                    "input_error",
                    msg(
                        "cases.larger_than_zip_says",
                        f"{entry.filename[:80]!r} is larger than the zip declares: a zip bomb?",
                    ),
                )
            out.write(chunk)
