"""Start of agent.pyz: the agent's command without an installation. Becomes `__main__` of it."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036 - a board may have any
        sys.exit("agent: this needs Python 3.10 or later, and %s is %s" % (sys.executable, sys.version.split()[0]))  # noqa: UP031
    from visualprof.remote.agent.command import main

    sys.exit(main())
