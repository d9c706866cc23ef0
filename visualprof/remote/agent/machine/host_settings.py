"""Settings of a host that move what is measured: CPU quota, frequency governor, turbo, hyper-threads, NUMA nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROCESS_CGROUP = Path("/proc/self/cgroup")
SYSFS = Path("/sys/devices/system")
_ON = {"1": True, "on": True, "0": False, "off": False, "forceoff": False, "notsupported": False}


@dataclass(frozen=True)
class HostSettings:
    """What the system says; None where it says nothing.

    cpu_quota: cores that the control group may use, None without a limit. governor: of the clocks, several with commas.
    turbo, smt: whether they are on. numa_nodes: how many.
    """

    cpu_quota: float | None
    governor: str | None
    turbo: bool | None
    smt: bool | None
    numa_nodes: int | None


def read_host_settings(
    sysfs: Path = SYSFS, cgroups: Path = CGROUP_ROOT, process_cgroup: Path = PROCESS_CGROUP
) -> HostSettings:
    """Those of this host, read anew: they change while an agent runs. The arguments are where the system tells them."""
    governors = {_text(file) for file in sysfs.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    no_turbo, boost = _text(sysfs / "cpu/intel_pstate/no_turbo"), _text(sysfs / "cpu/cpufreq/boost")
    turbo = _ON.get(boost or "") if no_turbo is None else not _ON.get(no_turbo, False)
    nodes = len(list(sysfs.glob("node/node[0-9]*")))
    return HostSettings(
        cpu_quota=min((quota for group in _groups(cgroups, process_cgroup) if (quota := _quota(group))), default=None),
        governor=", ".join(sorted(filter(None, governors))) or None,
        turbo=turbo,
        smt=_ON.get(_text(sysfs / "cpu/smt/control") or ""),
        numa_nodes=nodes or None,
    )


def throttled_periods(cgroups: Path = CGROUP_ROOT, process_cgroup: Path = PROCESS_CGROUP) -> int:
    """Periods in which a control group of this process had used up its quota, since it was made; the most of any."""
    return max((_throttled(group) for group in _groups(cgroups, process_cgroup)), default=0)


def _groups(cgroups: Path, own: Path) -> list[Path]:
    """The control group of this process and those above it: unified ones, and the CPU's of the older kind."""
    groups: list[Path] = []
    for line in (_text(own) or "").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "cpu" not in kinds.split(","):
            continue
        root = cgroups / kinds if kinds else cgroups
        below = root / path.lstrip("/")
        groups += [below, *(above for above in below.parents if above.is_relative_to(root))]
    return groups


def _quota(group: Path) -> float | None:
    """Cores: microseconds of CPU time in a period, divided by it; None without a limit."""
    words = (_text(group / "cpu.max") or "").split()
    if not words:
        words = [_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    try:
        quota, period = map(int, words)
    except ValueError:  # "max 100000"
        return None
    return quota / period if quota > 0 and period > 0 else None


def _throttled(group: Path) -> int:
    words = (_text(group / "cpu.stat") or "").split()
    numbers = dict(zip(words[::2], words[1::2], strict=False))
    return int(numbers.get("nr_throttled", "0"))


def _text(file: Path) -> str | None:
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return None
