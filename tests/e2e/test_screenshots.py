"""The pictures of the tutorials can still be taken, and show what the tutorials name."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e import screenshots

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PICTURES = sorted({name for page in TUTORIALS for name in re.findall(r"images/(\w+)\.png", page.read_text("utf-8"))})


def size(path: Path) -> tuple[int, int]:
    """Return width and height of a PNG file."""
    return struct.unpack(">II", path.read_bytes()[16:24])


def test_every_picture_of_a_tutorial_has_headings_to_look_for() -> None:
    assert [name for name in PICTURES if name not in screenshots.NAMED] == []


@pytest.mark.long
def test_the_pictures_of_the_tutorials_show_what_the_tutorials_name(tmp_path: Path) -> None:
    if reason := screenshots.why_not():
        pytest.skip(reason)
    program = (
        "import sys; from pathlib import Path; from tests.e2e import screenshots; "
        "screenshots.LOOKS = {'': ('en', 'light')}; screenshots.main(Path(sys.argv[1]), *sys.argv[2:])"
    )  # a process of its own, because the browser tests of this one hold the only Playwright
    command = [sys.executable, "-c", program, str(tmp_path), *PICTURES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in PICTURES:
        assert size(tmp_path / f"{name}.png") == size(ROOT / "docs" / "images" / f"{name}.png")
