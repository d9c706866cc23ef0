"""Samples the machine while a task runs, as one line of JSON per sample.

A sample has CPU use and power, pressure, the child's memory, and the GPUs.
The monitor runs in the agent, so that it neither disturbs the measured process nor ends with it.
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
from visualprof.remote.child.host import cpu_wait_us
from visualprof.remote.child.rapl import POWERCAP, Rapl
from visualprof.remote.protocol import MONITOR_SCHEMA, Gpu

PROFILE_INTERVAL_S = 0.02  # profile passes are short


class DeviceReader(Protocol):
    """Readings of one vendor's GPUs, implemented by `nvml.Nvml` and `rocm.Rocm`."""

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that the runtimes see, in their numbering."""
        ...

    def uuid(self, device: str) -> str | None:
        """Return the UUID of a device."""
        ...

    def sample(self, device: str, pids: Collection[int] = ()) -> dict[str, Any]:
        """Return the readings of a device, `None` where unknown; where possible also the share of the processes."""
        ...


class Monitor:
    """Samples one task while its child runs and writes them to a file.

    Attributes:
        interval_s: Time between two samples.
        phase: Current phase of the task, set by the stage runner.
        batch: Current batch size, set by the stage runner.
        error: Why the file could not be written; `None` if there was no error.
    """

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
        self._last_sample: tuple[int, Usage | None, int | None] = (time.time_ns(), None, cpu_wait_us())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        if not self._thread.is_alive():
            psutil.cpu_percent(None)  # the first answer has no reference interval
            self._thread.start()

    def watch(self, tree: ProcessTree | None) -> None:
        """Set the processes to sample; `None` while no child runs."""
        self._tree = tree
        last_ns, _, waited = self._last_sample
        self._last_sample = (last_ns, None, waited)

    def close(self) -> None:
        """Stop sampling. The file is complete afterwards."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._path.open("w", encoding="utf-8") as out:
                while not self._stop.wait(self.interval_s):
                    if self._tree is None:  # another task has the device
                        continue
                    rows = [self.sample()] if out.tell() else [self._header(), self.sample()]
                    out.writelines(json.dumps(row) + "\n" for row in rows)
                    out.flush()
        except OSError as error:
            self.error = error

    def _header(self) -> dict[str, Any]:
        gpus_by_id = {gpu.id: gpu for gpu in self._devices.gpus()}
        gpus = [
            {
                "id": gpu_id,
                "name": gpus_by_id[gpu_id].name,
                "uuid": self._devices.uuid(gpu_id),
                "memory_bytes": gpus_by_id[gpu_id].memory_bytes or None,
            }
            for gpu_id in self._gpus
            if gpu_id in gpus_by_id
        ]
        pid = self._tree.pid if self._tree else None
        return {"schema": MONITOR_SCHEMA, "interval_ms": round(self.interval_s * 1000), "gpus": gpus, "pid": pid}

    def sample(self) -> dict[str, Any]:
        """Return a sample. Shares of time refer to the interval since the previous sample."""
        now, tree = time.time_ns(), self._tree
        usage, waited, energy_j = tree.usage() if tree else None, cpu_wait_us(), self._rapl.used_j()
        last_ns, last_usage, last_waited = self._last_sample
        self._last_sample = (now, usage, waited)
        span_s = max(now - last_ns, 1) / 1e9
        return {
            "t_ns": now,
            "phase": self.phase,
            "batch": self.batch,
            "cpu": _clamp_share(psutil.cpu_percent(None) / 100),
            "child_cpu": _growth_share(
                usage and usage.cpu_s, last_usage and last_usage.cpu_s, span_s * (os.cpu_count() or 1)
            ),
            "load1": round(os.getloadavg()[0], 2),
            "pressure": _growth_share(waited, last_waited, span_s * 1e6),
            "rss_bytes": usage.rss_bytes if usage else None,
            "involuntary_switches": max(0, usage.switches - last_usage.switches) if usage and last_usage else None,
            "cpu_power_w": None if energy_j is None else round(energy_j / span_s, 3),
            "gpus": [self._devices.sample(gpu, tree.pids() if tree else ()) for gpu in self._gpus],
        }


def _growth_share(now: float | None, before: float | None, maximum: float) -> float | None:
    """Return the growth of a counter as a share of `maximum`; `None` if either reading is unknown."""
    return None if now is None or before is None else _clamp_share((now - before) / maximum)


def _clamp_share(value: float) -> float:
    return round(min(max(value, 0.0), 1.0), 4)
