"""The ranks that the straggler analysis of HTA names, computed by a Python that has HTA."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

PROGRAM = """
import json, sys, logging, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
files = json.load(sys.stdin)
analysis = TraceAnalysis(trace_files={int(rank): path for rank, path in files.items()}, include_last_profiler_step=True)
print("NAMED", json.dumps([int(rank) for rank in analysis.get_potential_stragglers(num_candidates=2)]))
"""


def stragglers(python: str, files: dict[int, Path], copies: Path, timeout_s: float = 600) -> list[int] | None:
    """Ranks that `get_potential_stragglers` of HTA 0.5.0 names, always two; None when it fails.

    It knows the kernels of NCCL before 2.19 alone (`ncclKernel_`), and fails where it finds none: it gets copies with
    those names.

    Args: files: by rank. copies: a folder for them, which is made.
    """
    copies.mkdir()
    for path in files.values():
        (copies / path.name).write_bytes(path.read_bytes().replace(b"ncclDevKernel_", b"ncclKernel_"))
    paths = json.dumps({rank: str(copies / path.name) for rank, path in files.items()})
    done = subprocess.run(
        [python, "-c", PROGRAM], input=paths, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("NAMED ")]
    return json.loads(lines[-1].removeprefix("NAMED ")) if lines else None
