"""Fixtures of `assistant`. Without the extra `mcp` one test says that the others are left out."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if find_spec("mcp"):
    from assistant import assistant

    __all__ = ["assistant"]
else:
    collect_ignore = ["test_mcp_protocol.py", "test_mcp_queries.py", "test_mcp_tools.py", "test_mcp_transports.py"]
