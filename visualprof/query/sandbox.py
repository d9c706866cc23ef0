"""Take rights away from the current process: resource limits, and access to files and the network (Landlock)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from pathlib import Path

ADDRESS_SPACE_BYTES = 2 << 30  # beyond what the process has mapped when it is restricted
MAX_FILE_BYTES = 64 << 20  # of a Parquet file in memory
CPU_MARGIN_S = 60

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # system calls, the same on all architectures
_GET_VERSION = 1
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
# Rights that each version of Landlock knows: bits of file access, of network access, and of scopes.
_FILE_RIGHTS_BY_VERSION = (13, 14, 15, 15, 16)
_NETWORK_RIGHTS, _NETWORK_VERSION = 0b11, 4  # bind and connect TCP
_SCOPES, _SCOPE_VERSION = 0b11, 6  # abstract sockets, signals


class _Ruleset(ctypes.Structure):
    """`struct landlock_ruleset_attr`."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


def limit_address_space() -> None:
    """Limit the memory that the process may map from now on. Does nothing on systems without such limits."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + ADDRESS_SPACE_BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size, size) if hard < 0 or size < hard else (hard, hard))


def limit_resources() -> None:
    """Limit address space, written files and core dumps. Does nothing on systems without such limits."""
    limit_address_space()
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, MAX_FILE_BYTES))


def limit_file_size(size: int) -> None:
    """Limit files that are written from now on. At most `MAX_FILE_BYTES`."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def limit_processor_time(seconds: int) -> None:
    """Let the system kill the process after further seconds of processor time."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    with contextlib.suppress(OSError, ValueError):
        limit = int(used.ru_utime + used.ru_stime) + seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def landlock_version() -> int:
    """Return the version of Landlock in the kernel, 0 if it is missing or disabled."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return 0
    return max(0, _call(_CREATE_RULESET, None, 0, _GET_VERSION))


def forbid_files_and_network() -> bool:
    """Forbid the current thread, and threads it starts later, to open files and TCP connections.

    Files that are open or mapped stay usable. Returns `False` if the kernel does not support this.
    """
    version = landlock_version()
    if not version:
        return False
    rights = _FILE_RIGHTS_BY_VERSION[min(version, len(_FILE_RIGHTS_BY_VERSION)) - 1]
    attributes = _Ruleset(
        (1 << rights) - 1,
        _NETWORK_RIGHTS if version >= _NETWORK_VERSION else 0,
        _SCOPES if version >= _SCOPE_VERSION else 0,
    )
    size = 24 if version >= _SCOPE_VERSION else 16 if version >= _NETWORK_VERSION else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        return False
    try:
        library = ctypes.CDLL(None, use_errno=True)
        privileges = library.prctl(_NO_NEW_PRIVILEGES, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0)))
        return privileges == 0 and _call(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: object) -> int:
    """Call the kernel and return its result, -1 on failure."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments))
