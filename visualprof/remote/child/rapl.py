"""Energy of the processors, as their own counters tell it; on most systems only root may read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass
class Rapl:
    """The counters of all processor packages together, without boards and parts of a package."""

    folder: Path = POWERCAP
    _before: dict[Path, int] = field(default_factory=dict[Path, int])

    def used_j(self) -> float | None:
        """Joules since the last call; None the first time, and where any package keeps silent. Counters begin anew."""
        packages = [zone for zone in self.folder.glob("intel-rapl:*") if _text(zone / "name").startswith("package")]
        now = {zone: _number(zone / "energy_uj") for zone in packages}
        known = {zone: value for zone, value in now.items() if value is not None}
        before, self._before = self._before, known
        if not known or len(known) < len(now) or before.keys() != known.keys():
            return None
        ranges = {zone: (_number(zone / "max_energy_range_uj") or 0) + 1 for zone in known}
        grown = {zone: value - before[zone] for zone, value in known.items()}
        return sum(by if by >= 0 else by + ranges[zone] for zone, by in grown.items()) / 1e6


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdecimal() else None
