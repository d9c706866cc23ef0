"""The machine while a task runs: CPU with its power, pressure, the child's memory, the GPU; a line of JSON a sample.

It runs in the agent, not in the child, so that it neither disturbs the measured process nor ends with it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

import psutil

from visualprof.remote.agent.machine.processes import ProcessTree, Usage
from visualprof.remote.child.host import waited_us
from visualprof.remote.child.rapl import POWERCAP, Rapl
from visualprof.remote.protocol import MONITOR_SCHEMA, Gpu

PROFILE_INTERVAL_S = 0.02  # a profile pass is short


class DeviceReader(Protocol):
    """GPUs of a maker, as `nvml.Nvml` and `rocm.Rocm` read them."""

    def gpus(self) -> list[Gpu]:
        """Those that the runtimes see, in their numbering."""
        ...

    def uuid(self, device: str) -> str | None:
        """What names it for good."""
        ...

    def sample(self, device: str, pids: Collection[int] = ()) -> dict[str, Any]:
        """Its readings, None where not known; of these processes apart where it can tell."""
        ...


class Monitor:
    """Samples of one task while a child of it runs, written to a file. phase, batch: set by whoever follows it."""

    def __init__(
        self, path: Path, interval_s: float, devices: DeviceReader, gpus: list[str], powercap: Path = POWERCAP
    ) -> None:
        self.interval_s = interval_s
        self.phase = "preparing"
        self.batch: int | None = None
        self.error: OSError | None = None
        self._path = path
        self._devices = devices
        self._gpus = gpus
        self._rapl = Rapl(powercap)
        self._tree: ProcessTree | None = None
        self._last: tuple[int, Usage | None, int | None] = (time.time_ns(), None, waited_us())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        if not self._thread.is_alive():
            psutil.cpu_percent(None)  # the first answer is since nothing
            self._thread.start()

    def watch(self, tree: ProcessTree | None) -> None:
        """Set the processes whose usage is sampled; None: no child runs."""
        self._tree = tree
        at, _, waited = self._last
        self._last = (at, None, waited)

    def close(self) -> None:
        """End the sampling; the file is complete afterwards."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._path.open("w", encoding="utf-8") as out:
                while not self._stop.wait(self.interval_s):
                    if self._tree is None:  # another task has its turn
                        continue
                    rows = [self.sample()] if out.tell() else [self._header(), self.sample()]
                    out.writelines(json.dumps(row) + "\n" for row in rows)
                    out.flush()
        except OSError as error:
            self.error = error

    def _header(self) -> dict[str, Any]:
        known = {gpu.id: gpu for gpu in self._devices.gpus()}
        gpus = [
            {
                "id": g,
                "name": known[g].name,
                "uuid": self._devices.uuid(g),
                "memory_bytes": known[g].memory_bytes or None,
            }
            for g in self._gpus
            if g in known
        ]
        pid = self._tree.pid if self._tree else None
        return {"schema": MONITOR_SCHEMA, "interval_ms": round(self.interval_s * 1000), "gpus": gpus, "pid": pid}

    def sample(self) -> dict[str, Any]:
        """A sample of now; shares of time are since the sample before."""
        now, tree = time.time_ns(), self._tree
        usage, waited, used_j = tree.usage() if tree else None, waited_us(), self._rapl.used_j()
        at, before, waited_before = self._last
        self._last = (now, usage, waited)
        span_s = max(now - at, 1) / 1e9
        return {
            "t_ns": now,
            "phase": self.phase,
            "batch": self.batch,
            "cpu": _share(psutil.cpu_percent(None) / 100),
            "child_cpu": _rate(usage and usage.cpu_s, before and before.cpu_s, span_s * (os.cpu_count() or 1)),
            "load1": round(os.getloadavg()[0], 2),
            "pressure": _rate(waited, waited_before, span_s * 1e6),
            "rss_bytes": usage.rss_bytes if usage else None,
            "involuntary_switches": max(0, usage.switches - before.switches) if usage and before else None,
            "cpu_power_w": None if used_j is None else round(used_j / span_s, 3),
            "gpus": [self._devices.sample(gpu, tree.pids() if tree else ()) for gpu in self._gpus],
        }


def _rate(now: float | None, before: float | None, most: float) -> float | None:
    """The growth of a counter as a share of `most`, None where one of the two readings is not known."""
    return None if now is None or before is None else _share((now - before) / most)


def _share(value: float) -> float:
    return round(min(max(value, 0.0), 1.0), 4)
