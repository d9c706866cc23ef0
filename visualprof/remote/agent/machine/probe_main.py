"""Inspects the interpreter that runs it. This file becomes `__main__` of probe.pyz.

- Without an argument: print the version, the folders, the backends with an installed module, and the usable converters.
- With the name of a backend or converter: print its version and devices. This imports the runtime, which may take
  seconds, print, or crash.
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
    """Return the interpreter's version, folders, backends and converters without importing a runtime."""
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    folders += [path for path in sys.path if os.path.isdir(path)]
    backends = [backend.name for backend in all_backends() if importlib.util.find_spec(backend.module) is not None]
    prefixes = sorted({*folders, *map(os.path.realpath, folders)})
    converters = [kind.name for kind in all_converters() if not kind.missing_packages()]
    answer = {"prefixes": prefixes, "backends": backends, "converters": converters}
    return {"python_version": platform.python_version(), **answer}


def describe_runtime(name: str) -> dict[str, Any]:
    """Return the version and devices of a backend; for a converter, the version of its first requirement."""
    if name in {kind.name for kind in all_converters()}:
        tools = converter(name).tool_versions()
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
    os._exit(0)  # skip the exit handlers of runtimes
