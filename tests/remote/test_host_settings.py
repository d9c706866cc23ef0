"""Settings of a host, read from simulated system files."""

from __future__ import annotations

from pathlib import Path

import pytest

from visualprof.remote.agent.machine.host_settings import HostSettings, read_host_settings, throttled_periods


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.fixture
def host(tmp_path: Path) -> tuple[Path, Path, Path]:
    return tmp_path / "sys", tmp_path / "cgroup", tmp_path / "own"


def test_a_system_without_settings_is_unknown(host: tuple[Path, Path, Path]) -> None:
    assert read_host_settings(*host) == HostSettings(None, None, None, None, None)
    assert throttled_periods(*host[1:]) == 0


def test_settings_of_a_system_are_read(host: tuple[Path, Path, Path]) -> None:
    sys, cgroup, own_group = host
    written(
        sys,
        {
            "cpu/cpu0/cpufreq/scaling_governor": "powersave",
            "cpu/cpu1/cpufreq/scaling_governor": "performance",
            "cpu/intel_pstate/no_turbo": "0",
            "cpu/smt/control": "on",
            "node/node0/cpulist": "0-1",
            "node/node1/cpulist": "2-3",
        },
    )
    own_group.write_text("0::/system.slice/docker-1.scope\n")
    written(
        cgroup,
        {
            "system.slice/cpu.max": "400000 100000",
            "system.slice/docker-1.scope/cpu.max": "max 100000",
            "system.slice/docker-1.scope/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 7",
        },
    )
    assert read_host_settings(*host) == HostSettings(4.0, "performance, powersave", True, True, 2)
    assert throttled_periods(cgroup, own_group) == 7


@pytest.mark.parametrize(
    ("files", "turbo"),
    [
        ({"cpu/intel_pstate/no_turbo": "1"}, False),
        ({"cpu/cpufreq/boost": "1"}, True),
        ({"cpu/cpufreq/boost": "0"}, False),
    ],
)
def test_turbo_is_read_from_either_file(host: tuple[Path, Path, Path], files: dict[str, str], turbo: bool) -> None:
    written(host[0], files)
    assert read_host_settings(*host).turbo is turbo


def test_control_groups_v1_have_a_quota(host: tuple[Path, Path, Path]) -> None:
    _, cgroup, own_group = host
    own_group.write_text("5:memory:/x\n4:cpu,cpuacct:/docker/1\n")
    quota = {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000", "cpu.stat": "nr_periods 3\nnr_throttled 2"}
    written(cgroup / "cpu,cpuacct/docker/1", quota)
    written(cgroup / "cpu,cpuacct/docker", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    assert read_host_settings(*host).cpu_quota == 1.5
    assert throttled_periods(cgroup, own_group) == 2
