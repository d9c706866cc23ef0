"""Measure how often verdicts repeat: `python -m tests.advice_repeats MODEL [--times 10] [-- options of advise]`.

Runs the same advice several times on this machine and tells of each candidate how often each verdict came, and the
ratios that it had. On effects above 15 % at least nine of ten agree; smaller ones and a busy machine may change sides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

EFFECT = 0.15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--times", type=int, default=10)
    folders, more = sys.argv[1:], list[str]()
    if "--" in folders:
        folders, more = folders[: folders.index("--")], folders[folders.index("--") + 1 :]
    args = parser.parse_args(folders)
    verdicts, ratios = defaultdict[str, list[str]](list), defaultdict[str, list[float]](list)
    for _ in range(args.times):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "visualprof",
                "advise",
                args.model,
                "-o",
                f"{folder}/out",
                "--format",
                "json",
            ]
            done = subprocess.run([*command, *more], capture_output=True, check=True, text=True)
        rows = json.loads(done.stdout)["advice"]
        for name, verdict, ratio in zip(rows["candidate"], rows["verdict"], rows["ratio"], strict=True):
            verdicts[name].append(verdict)
            ratios[name] += [ratio] if ratio else []
    failed = 0
    for name, found in verdicts.items():
        (most, times), *others = Counter(found).most_common()
        middle = statistics.median(ratios[name]) if ratios[name] else None
        clear = name != "original" and middle is not None and abs(middle - 1) > EFFECT
        failed += clear and times < 0.9 * args.times
        span = f"{min(ratios[name]):.2f} to {max(ratios[name]):.2f}" if middle else "-"
        rest = "".join(f", {verdict} {n}" for verdict, n in others)
        sys.stdout.write(
            f"{'clear' if clear else '     '}  {name:45} {most} {times}/{args.times}{rest}  ratio {span}\n"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
