"""Files of a case's result, and the digest of what determines them."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, cast

from visualprof.remote.cases.layers import MergedConfig
from visualprof.remote.child.case.task import CaseTask

STATE_FILES = ("case.json", "steps", "points.jsonl")  # files of the result that belong to no step


def list_files(out: Path) -> dict[str, tuple[int, int]]:
    """Return the files of a result with size and modification time, by path."""
    files = [file for file in out.rglob("*") if file.is_file() and not file.is_symlink()]
    status = {file.relative_to(out).as_posix(): file.stat() for file in files}
    return {path: (at.st_size, at.st_mtime_ns) for path, at in status.items() if path.split("/")[0] not in STATE_FILES}


def case_digest(task: CaseTask, merged: MergedConfig) -> str:
    """Return a digest of what determines the result: configuration, code and interpreter, but not paths."""
    ignored = ("perf_dir", "log_dir")
    settings = {key: setting.value for key, setting in merged.settings.items() if key not in ignored}
    text, root = json.dumps([settings, sys.version, sys.prefix, task.device]), Path(task.root)
    digest = hashlib.sha256(text.replace(task.root, "").encode())
    for file in sorted(root.rglob("*")):
        if file.is_file() and "data" not in file.relative_to(root).parts and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(root).as_posix()} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def write_json(file: Path, content: object) -> None:
    """Write JSON atomically."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(content, indent=1), "utf-8")
    part.replace(file)


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file, empty if there is no file."""
    try:
        content: object = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def file_sha256(file: Path) -> str:
    """Return the sha256 of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
