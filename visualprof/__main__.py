"""`python -m visualprof`."""

from __future__ import annotations

import sys

from visualprof.cli import main

if __name__ == "__main__":
    sys.exit(main())
