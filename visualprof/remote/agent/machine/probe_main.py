"""What an interpreter has, asked in that interpreter. Becomes `__main__` of probe.pyz.

Without an argument: its version, folders, the backends whose module it finds, and the converters that have all they
need. With a name of one: its version and devices, which imports the runtime and may take seconds, print, or crash.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import sys
from typing import Any

from visualprof.remote.backends import all_backends, backend
from visualprof.remote.converters import all_converters, converter


def describe_interpreter() -> dict[str, Any]:
    """The interpreter's version, folders, backends and converters, found without importing any runtime."""
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    folders += [path for path in sys.path if os.path.isdir(path)]
    backends = [backend.name for backend in all_backends() if importlib.util.find_spec(backend.module) is not None]
    prefixes = sorted({*folders, *map(os.path.realpath, folders)})
    converters = [each.name for each in all_converters() if not each.missing()]
    told = {"prefixes": prefixes, "backends": backends, "converters": converters}
    return {"python_version": platform.python_version(), **told}


def describe_runtime(name: str) -> dict[str, Any]:
    """Version and devices of a backend; of a converter the version of what it needs first."""
    if name in {each.name for each in all_converters()}:
        tools = converter(name).tools()
        for module in tools:
            importlib.import_module(module)
        return {"version": next(iter(tools.values())), "devices": []}
    runtime = backend(name)
    importlib.import_module(runtime.module)
    return {"version": runtime.version(), "devices": list(runtime.devices())}


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # runtimes print at import
    json.dump(describe_runtime(sys.argv[1]) if len(sys.argv) > 1 else describe_interpreter(), answer)
    answer.close()
    os._exit(0)  # what a runtime does at its exit is none of the probe's business
