"""Energy of the processors, read from their RAPL counters. On most systems only root may read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass
class Rapl:
    """The summed energy counters of all processor packages, without other zones and without the parts of a package.

    Attributes:
        folder: The powercap folder of sysfs.
    """

    folder: Path = POWERCAP
    _last_values: dict[Path, int] = field(default_factory=dict[Path, int])

    def used_j(self) -> float | None:
        """Return the energy since the last call, in joules.

        Returns:
            `None` on the first call and if any package cannot be read. Counters that wrapped around are corrected.
        """
        packages = [zone for zone in self.folder.glob("intel-rapl:*") if _text(zone / "name").startswith("package")]
        readings = {zone: _number(zone / "energy_uj") for zone in packages}
        values = {zone: value for zone, value in readings.items() if value is not None}
        last_values, self._last_values = self._last_values, values
        if not values or len(values) < len(readings) or last_values.keys() != values.keys():
            return None
        ranges = {zone: (_number(zone / "max_energy_range_uj") or 0) + 1 for zone in values}
        deltas = {zone: value - last_values[zone] for zone, value in values.items()}
        return sum(delta if delta >= 0 else delta + ranges[zone] for zone, delta in deltas.items()) / 1e6


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdecimal() else None
