"""Recordings of one script, and of one with a slower kernel, as machines make them: how often a comparison is wrong.

    python -m benchmarks.noise [--tries N]

150 rows whose steps resemble their neighbors (AR(1)), with spikes; each recording has its own clock, which drifts.
The spreads are measured ones: kernels 0.8 %, a clock that is up to 1 % another one, a busy host 6 %. Rows of a host
differ from one recording to the next, too: where memory lies and what else runs, 4 % in the median pair, up to 15 %.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

from visualprof.views.answers.table import Table
from visualprof.views.diff.answer import DiffAnswer
from visualprof.views.diff.compare import Named, compare
from visualprof.views.diff.facts import Facts
from visualprof.views.diff.side import Cells, Pieces, Side, StepTimes
from visualprof.views.measure.steps.parts import STEP_PARTS

ROWS = 150
SPIKES, SPIKE = 0.05, (0.1, 0.5)
FACTS = Facts(
    framework="pytorch",
    version="",
    format="kineto",
    device_type="cuda",
    device="GPU",
    device_work="kernel",
    host="",
    marked=True,
    truncated=False,
    input="",
    precision="",
    cpu_pressure_ratio=None,
    system_cpu_ratio=None,
)


@dataclass(frozen=True)
class Noise:
    """spread: of a row between steps. alike: correlation of a step with the next. clock: spread between recordings.

    drift: spread of the clock between steps. between: spread of a row between recordings. device: what the rows run on.
    """

    steps: int = 15
    spread: float = 0.008
    alike: float = 0.5
    clock: float = 0.01
    drift: float = 0.01
    between: float = 0.0
    device: bool = True


QUIET, BUSY, HOST = Noise(), Noise(spread=0.06), Noise(spread=0.06, between=0.05, device=False)


def recorded(noise: Noise, rng: np.random.Generator, slower: float = 1.0, row: int = 20) -> Side:
    """Write a recording of the script, one of whose rows takes `slower` times as long."""
    means = 1e6 / np.arange(1, ROWS + 1)  # few rows take most of the time
    clock = rng.normal(0, noise.clock) + noise.drift * _alike(rng, 1, noise)[0]
    times = means[:, None] * np.exp(noise.spread * _alike(rng, ROWS, noise) + clock)
    if noise.between:
        times *= np.exp(rng.normal(0, noise.between, (ROWS, 1)))
    times *= 1 + (rng.random(times.shape) < SPIKES) * rng.uniform(*SPIKE, times.shape)
    times[row] *= slower
    spent = np.rint(times).astype(np.int64)
    total = spent.sum(axis=0)
    parts = {f"{part}_ns": total if part == "kernel" else np.zeros_like(total) for part in STEP_PARTS}
    piece, step = np.divmod(np.arange(spent.size), noise.steps)
    return Side(
        facts=FACTS,
        steps=Table(
            columns=StepTimes(
                name=[str(i) for i in range(noise.steps)], typical=[True] * noise.steps, total_ns=total, **parts
            )
        ),
        pieces=Table(
            columns=Pieces(
                part=["kernel"] * ROWS,
                name=[f"kernel {i}" for i in range(ROWS)],
                under=[f"op {i}" for i in range(ROWS)],
                on_device=[noise.device] * ROWS,
            )
        ),
        cells=Table(columns=Cells(piece=piece, step=step, calls=np.ones(spent.size, np.int64), spent_ns=spent.ravel())),
    )


def _alike(rng: np.random.Generator, rows: int, noise: Noise) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Steps (rows, steps) that resemble their neighbors, of variance 1."""
    fresh = rng.normal(size=(rows, noise.steps))
    out = np.array(fresh)
    for i in range(1, noise.steps):
        out[:, i] = noise.alike * out[:, i - 1] + np.sqrt(1 - noise.alike**2) * fresh[:, i]
    return out


def tried(noise: Noise, slower: float, seed: int) -> DiffAnswer:
    """One pair of recordings, compared."""
    rng = np.random.default_rng(seed)
    base = Named("base", recorded(noise, rng))
    return compare("kernel", base, Named("new", recorded(noise, rng, slower)))


def called(answer: DiffAnswer) -> list[str]:
    """The rows that a comparison calls changed."""
    columns = answer.rows.columns
    return [name for name, sure in zip(columns.name, columns.significant, strict=True) if sure]


def main() -> None:
    """Prints how often rows and steps are called changed, and what could be seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=100)
    tries = parser.parse_args().tries
    print("| machine | steps | false row | +10 % found | false rows next to it | false step | detectable from |")
    print("|---|---|---|---|---|---|---|")
    for name, shape in (("quiet", QUIET), ("busy", BUSY), ("busy host", HOST)):
        for steps in (5, 10, 15, 20, 50):
            noise = replace(shape, steps=steps)
            same = [tried(noise, 1.0, seed) for seed in range(tries)]
            slower = [called(tried(noise, 1.1, seed)) for seed in range(tries)]
            rows = sum(bool(called(answer)) for answer in same) / tries
            detected = sum("kernel 20" in rows for rows in slower) / tries
            others = sum(bool({*rows} - {"kernel 20"}) for rows in slower) / tries
            whole = sum(bool(answer.step and answer.step.significant) for answer in same) / tries
            seen = np.median([answer.detectable_ratio or np.inf for answer in same])
            shares = " | ".join(f"{share:.0%}" for share in (rows, detected, others, whole))
            print(f"| {name} | {steps} | {shares} | {f'{seen:.1%}' if np.isfinite(seen) else '–'} |")


if __name__ == "__main__":
    main()
