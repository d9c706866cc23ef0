"""Sample the machine during a recording: CPU, memory, disk, power, GPUs; `monitor.jsonl` as in remote runs."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from visualprof.capture import files
from visualprof.capture.files import Worker, warn
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.child.host import cpu_wait_us
from visualprof.remote.child.rapl import Rapl
from visualprof.remote.protocol import MONITOR_SCHEMA

INTERVAL_S = 0.1
PROC = Path("/proc")


class Monitor:
    """Sampler during recordings. One process of each host writes the samples of all its recordings into one file."""

    def __init__(self, folder: Path, worker: Worker) -> None:
        name = "monitor" if worker.rank <= 0 else f"monitor_{worker.host}"
        self._path = folder / f"{name}.jsonl" if files.leads_host() else None
        self._pid = worker.pid
        self._nvml = Nvml()
        self._rapl = Rapl()
        self._gpus = [gpu.id for gpu in self._nvml.gpus()]
        self._before: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="visualprof monitor", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        if self._path:
            self._before = _counters()
            self._rapl.used_j()
            self._thread.start()

    def stop(self) -> None:
        """Take the last sample; the file is complete afterwards."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        assert self._path
        try:
            with self._path.open("a", encoding="utf-8") as out:
                if not out.tell():
                    out.write(json.dumps(self._header()) + "\n")
                while True:
                    last = self._end.wait(INTERVAL_S)
                    out.write(json.dumps(self._sample()) + "\n")
                    out.flush()
                    if last:
                        return
        except OSError as error:
            warn(f"{self._path} was not written: {error}")

    def _header(self) -> dict[str, Any]:
        gpus = [{"id": g.id, "name": g.name, "uuid": self._nvml.uuid(g.id)} for g in self._nvml.gpus()]
        return {"schema": MONITOR_SCHEMA, "interval_ms": round(INTERVAL_S * 1000), "gpus": gpus, "pid": self._pid}

    def _sample(self) -> dict[str, Any]:
        before, now = self._before, _counters()
        self._before = now
        span_s = now["at_s"] - before["at_s"]
        joules = self._rapl.used_j()

        def rate(key: str) -> float | None:
            """Return the growth of a counter per second, or None if the system does not report it."""
            measurable = key in now and key in before and span_s > 0
            return max(0.0, now[key] - before[key]) / span_s if measurable else None

        def share(part: float | None, whole: float | None) -> float | None:
            return round(min(part / whole, 1.0), 4) if part is not None and whole else None

        return {
            "t_ns": time.time_ns(),
            "phase": "recording",
            "batch": None,
            "cpu": share(rate("busy"), rate("ticks")),
            "child_cpu": share(rate("own_s"), float(os.cpu_count() or 1)),
            "load1": round(os.getloadavg()[0], 2),
            "pressure": share(rate("waited_us"), 1e6),
            "rss_bytes": _rss(),
            "read_bytes_s": rate("read"),
            "written_bytes_s": rate("written"),
            "cpu_power_w": round(joules / span_s, 3) if joules is not None and span_s > 0 else None,
            "gpus": [self._nvml.sample(gpu) for gpu in self._gpus],
        }


def _counters() -> dict[str, float]:
    """Return the monotonic counters that the system reports."""
    times = os.times()
    out = {"at_s": time.monotonic(), "own_s": times.user + times.system}
    ticks = [int(field) for field in _text("stat").partition("\n")[0].split()[1:9]]
    if len(ticks) == 8:  # user nice system idle iowait irq softirq steal
        out |= {"ticks": sum(ticks), "busy": sum(ticks) - ticks[3] - ticks[4]}
    waited = cpu_wait_us()
    if waited is not None:
        out["waited_us"] = waited
    io = dict(line.split(": ") for line in _text("self/io").splitlines())
    return out | {name: int(io[key]) for name, key in (("read", "read_bytes"), ("written", "write_bytes")) if key in io}


def _rss() -> int | None:
    pages = _text("self/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None


def _text(name: str) -> str:
    try:
        return (PROC / name).read_text("ascii", "replace")
    except OSError:
        return ""
