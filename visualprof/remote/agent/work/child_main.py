"""Start of a child in the runtime's interpreter: apply limits, then work. This file becomes `__main__` of code.pyz."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress

LIMITS_VARIABLE = "VISUALPROF_LIMITS"  # "FSIZE=1024 NPROC=100 ..."
PR_SET_PDEATHSIG = 1
OOM_SCORE = "500"


def apply_limits() -> None:
    """Apply the agent's resource limits, die with the agent, and be killed first when memory runs out."""
    for pair in os.environ.pop(LIMITS_VARIABLE, "").split():
        name, _, value = pair.partition("=")
        limit = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(limit)[1]
        value_wanted = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        resource.setrlimit(limit, (value_wanted, value_wanted))
    with suppress(OSError, AttributeError):  # not Linux, or another C library
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)


if __name__ == "__main__":
    apply_limits()
    from visualprof.remote.child.main import main

    sys.exit(main(sys.argv[1:]))
