"""Runs npm for the page: `python -m benchmarks.npm test`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from setup import FRONTEND, node_environment

if __name__ == "__main__":
    environment = node_environment()
    npm = shutil.which("npm", path=environment["PATH"]) or "npm"
    sys.exit(subprocess.run([npm, *sys.argv[1:]], cwd=FRONTEND, env=environment, check=False).returncode)
