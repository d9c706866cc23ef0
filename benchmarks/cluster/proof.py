"""Are injected faults found? Precision and recall of the Distributed page, and of HTA on clusters that it can hold.

    python -m benchmarks.cluster.proof [--seeds 5] [--kinds healthy ...] [--verbose] [--small] [--hta PYTHON]

A fault is found when a finding names something that it slows down and nothing else, exactly when it names all of it
and calls the cause by its name; a finding is right when it names something that a fault slows down. PYTHON
is one that has HolisticTraceAnalysis 0.5.0.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cluster import hta
from benchmarks.cluster.cases import SMALL, STEPS, TOPOLOGIES, Case, cases
from benchmarks.cluster.finding import Finding, findings
from benchmarks.cluster.job import make, write
from visualprof.reader import read_trace
from visualprof.views import run_view

EVENTS, WORTH = 6_000, 0.01
SHARE = "{:.0%}".format


class Score(NamedTuple):
    """Of one cluster: faults that were injected, found, and found exactly; what was named, and rightly."""

    injected: int
    found: int
    exact: int
    named: int
    right: int


class Tried(NamedTuple):
    """A case, what each fault costs, what was found, and the scores; HTA's is None where it was not asked.

    failed: HTA did, which counts as naming nobody.
    """

    case: Case
    costs: list[float]
    findings: list[Finding]
    ours: Score
    theirs: Score | None
    failed: bool


def tried(case: Case, python: str = "") -> Tried:
    """Makes a cluster and asks who is slow."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    try:
        job, truth = make(case.topology, (STEPS, EVENTS, 0), case.faults, case.seed, case.noise)
        write(job, truth, folder / "job")
        files = sorted((folder / "job").iterdir())
        found = _asked(files)
        theirs = hta.stragglers(python, dict(enumerate(files)), folder / "copies") if python else None
    finally:
        shutil.rmtree(folder)
    costs = [fault["alone"] for fault in truth["faults"]]
    ranks = [Finding("rank", (rank,), tuple({case.topology.host(rank)}), "") for rank in theirs or ()]
    return Tried(
        case,
        costs,
        found,
        score(truth, found),
        score(truth, ranks) if python else None,
        bool(python) and theirs is None,
    )


def _asked(files: list[Path]) -> list[Finding]:
    chosen = run_view("distributed")
    parts = [(path.name.partition(".")[0], chosen.map_worker(read_trace(path))) for path in files]
    return findings(chosen.compute_from_parts(parts, chosen.params()))


def score(truth: dict[str, Any], found: list[Finding]) -> Score:
    """Compare findings with injected faults. A fault that costs less than 1 % of a step need not be found."""
    worth = [fault for fault in truth["faults"] if fault["alone"] >= WORTH]
    fits = [[finding for finding in found if finding.fits(fault)] for fault in worth]
    exact = [any(finding.exact(fault) for finding in found) for fault in worth]
    right = sum(any(finding.fits(fault) for fault in truth["faults"]) for finding in found)
    return Score(len(fits), sum(map(bool, fits)), sum(exact), len(found), right)


def table(done: Iterable[Tried]) -> Iterator[str]:
    """Rows of Markdown by kind."""
    kinds = defaultdict[str, list[Tried]](list)
    for each in done:
        kinds[each.case.kind].append(each)
    yield "| injected | clusters | costs | found | exactly | correct findings | HTA: found | correct findings |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    every = [result for of_kind in kinds.values() for result in of_kind]
    for kind, of_kind in [*kinds.items(), ("all", every)]:
        ours = _sum(result.ours for result in of_kind)
        theirs = _sum(result.theirs for result in of_kind if result.theirs)
        costs = [sum(result.costs) for result in of_kind if result.costs]
        cost = f"{SHARE(statistics.median(costs))}" if costs else ""
        cells = [kind, str(len(of_kind)), cost, *_shares(ours)]
        cells += [cell for i, cell in enumerate(_shares(theirs)) if i != 1] if of_kind[0].theirs else ["", ""]
        yield f"| {' | '.join(cells)} |"


def _sum(scores: Iterable[Score]) -> Score:
    return Score(*(sum(column) for column in zip(Score(0, 0, 0, 0, 0), *scores, strict=True)))


def _shares(of: Score) -> list[str]:
    texts = [f"{n} of {of.injected} ({SHARE(n / of.injected)})" if of.injected else "" for n in (of.found, of.exact)]
    return [*texts, f"{of.right} of {of.named} ({SHARE(of.right / of.named)})" if of.named else "none named"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="clusters of each kind")
    parser.add_argument("--kinds", nargs="*", default=[], help="only these, by the beginnings of their names")
    parser.add_argument("--small", action="store_true", help="clusters of 16 ranks")
    parser.add_argument("--hta", default="", metavar="PYTHON", help="ask HTA, too, on clusters of 16 ranks")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="every cluster with what was found in it")
    options = parser.parse_args()
    chosen = tuple(options.kinds) or ("",)
    small = options.small or bool(options.hta)
    every = [case for case in cases(options.seeds, SMALL if small else TOPOLOGIES) if case.kind.startswith(chosen)]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        done = list[Tried]()
        for result in pool.imap(partial(tried, python=options.hta), every):
            done.append(result)
            if options.verbose:
                print(_said(result), flush=True)
    print("\n" + "\n".join(table(done)))
    if small and not options.hta:
        print("\nHTA was not asked: --hta names a Python that has HolisticTraceAnalysis 0.5.0")


def _said(each: Tried) -> str:
    case, t = each.case, each.case.topology
    costs = ", ".join(f"{fault} costs {SHARE(cost)}" for fault, cost in zip(case.faults, each.costs, strict=True))
    shape = f"{t.ranks} ranks, {t.tensor} x {t.data} x {t.pipeline}, expert {t.expert}"
    named = "; ".join(map(str, each.findings)) or "nothing"
    theirs = f"; HTA {each.theirs.right} of {each.theirs.named} right" if each.theirs else ""
    theirs = "; HTA fails" if each.failed else theirs
    return f"{case.kind} #{case.seed} ({shape}): {costs or 'nothing injected'} -> {named}{theirs}"


if __name__ == "__main__":
    main()
