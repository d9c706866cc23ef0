"""Host settings that influence measurements: CPU quota, frequency governor, turbo, hyper-threading, NUMA nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROCESS_CGROUP = Path("/proc/self/cgroup")
SYSFS = Path("/sys/devices/system")
_SWITCH_VALUES = {"1": True, "on": True, "0": False, "off": False, "forceoff": False, "notsupported": False}


@dataclass(frozen=True)
class HostSettings:
    """Settings of the host; `None` if the system does not report the setting.

    Attributes:
        cpu_quota: Cores that the control group may use; `None` without a limit.
        governor: Frequency governor; several are separated by commas.
        turbo: Whether turbo is on.
        smt: Whether hyper-threading is on.
        numa_nodes: Number of NUMA nodes.
    """

    cpu_quota: float | None
    governor: str | None
    turbo: bool | None
    smt: bool | None
    numa_nodes: int | None


def read_host_settings(
    sysfs: Path = SYSFS, cgroups: Path = CGROUP_ROOT, process_cgroup: Path = PROCESS_CGROUP
) -> HostSettings:
    """Read the current settings of this host, which can change while an agent runs.

    Args:
        sysfs: Folder of the system's devices.
        cgroups: Root of the control groups.
        process_cgroup: File that names the control groups of this process.
    """
    governors = {_text(file) for file in sysfs.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    no_turbo, boost = _text(sysfs / "cpu/intel_pstate/no_turbo"), _text(sysfs / "cpu/cpufreq/boost")
    turbo = _SWITCH_VALUES.get(boost or "") if no_turbo is None else not _SWITCH_VALUES.get(no_turbo, False)
    nodes = len(list(sysfs.glob("node/node[0-9]*")))
    return HostSettings(
        cpu_quota=min(
            (quota for group in _cgroup_paths(cgroups, process_cgroup) if (quota := _quota(group))), default=None
        ),
        governor=", ".join(sorted(filter(None, governors))) or None,
        turbo=turbo,
        smt=_SWITCH_VALUES.get(_text(sysfs / "cpu/smt/control") or ""),
        numa_nodes=nodes or None,
    )


def throttled_periods(cgroups: Path = CGROUP_ROOT, process_cgroup: Path = PROCESS_CGROUP) -> int:
    """Return the periods in which a control group of this process exhausted its quota, since the group was created.

    With several control groups, return the largest count.
    """
    return max((_throttled_count(group) for group in _cgroup_paths(cgroups, process_cgroup)), default=0)


def _cgroup_paths(cgroups: Path, process_cgroup: Path) -> list[Path]:
    """Return the control groups of this process and their parents: cgroup v2, and the CPU controllers of cgroup v1."""
    groups: list[Path] = []
    for line in (_text(process_cgroup) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        path_below = root / path.lstrip("/")
        groups += [path_below, *(parent for parent in path_below.parents if parent.is_relative_to(root))]
    return groups


def _quota(group: Path) -> float | None:
    """Return a quota in cores (CPU time per period divided by the period); `None` without a limit."""
    words = (_text(group / "cpu.max") or "").split()
    if not words:
        words = [_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    try:
        quota, period = map(int, words)
    except ValueError:  # "max 100000"
        return None
    return quota / period if quota > 0 and period > 0 else None


def _throttled_count(group: Path) -> int:
    words = (_text(group / "cpu.stat") or "").split()
    numbers = dict(zip(words[::2], words[1::2], strict=False))
    return int(numbers.get("nr_throttled", "0"))


def _text(file: Path) -> str | None:
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return None
