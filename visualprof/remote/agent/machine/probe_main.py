"""What an interpreter has, asked in that interpreter. Becomes `__main__` of probe.pyz.

Without an argument: its version, folders and the backends whose module it finds. With a backend's name: its version
and devices, which imports the runtime and may take seconds, print, or crash.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from typing import Any

from visualprof.remote.backends import all_backends, backend


def overview() -> dict[str, Any]:
    """What can be said without importing any runtime."""
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    folders += [path for path in sys.path if os.path.isdir(path)]
    found = [each.name for each in all_backends() if importlib.util.find_spec(each.module) is not None]
    prefixes = sorted({each for folder in folders for each in (folder, os.path.realpath(folder))})
    return {"python_version": platform.python_version(), "prefixes": prefixes, "backends": found}


def detail(name: str) -> dict[str, Any]:
    """Version and devices of a backend."""
    chosen = backend(name)
    module = importlib.import_module(chosen.module)
    try:
        version = importlib.metadata.version(chosen.package)
    except importlib.metadata.PackageNotFoundError:  # a build of one's own, or a sister package (onnxruntime-gpu)
        version = str(getattr(module, "__version__", ""))
    return {"version": version, "devices": list(chosen.devices())}


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # runtimes print at import
    json.dump(detail(sys.argv[1]) if len(sys.argv) > 1 else overview(), answer)
    answer.close()
    os._exit(0)  # what a runtime does at its exit is none of the probe's business
