"""Start of agent.pyz: the agent's command without an installation. Becomes `__main__` of it."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from visualprof.remote.agent.command import main

    sys.exit(main())
