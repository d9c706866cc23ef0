"""Start agent.pyz: the agent's command without an installation. This file becomes `__main__` of the archive."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036 - a board may have any version
        sys.exit("agent: this needs Python 3.10 or later, and %s is %s" % (sys.executable, sys.version.split()[0]))  # noqa: UP031
    from visualprof.remote.agent.command import main

    sys.exit(main())
