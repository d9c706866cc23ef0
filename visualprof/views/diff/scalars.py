"""Comparison of the scalars of two runs by tag: final, smallest and largest values."""

from __future__ import annotations

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.run_data.run import RunData, ScalarTag
from visualprof.views.answers.kinds import CountColumn, NameColumn, RatioColumn, WordColumn
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.run_data.lines import line_name


class DiffScalars(Columns):
    """Scalars of two runs, by tag and line. Values that are missing or not finite are null.

    Attributes:
        run: Folder of the line below the run.
        base_last: Value at the last step of the base run.
        new_last: Value at the last step of the new run.
        delta: Final value of the new run minus that of the base run.
        delta_ratio: The difference relative to the base run.
        base_min: Smallest value.
        new_min: Smallest value.
        base_max: Largest value.
        new_max: Largest value.
        base_step: Last step.
        new_step: Last step.
        status: added or removed (only one side has the tag), changed, same.
    """

    tag: NameColumn
    run: NameColumn
    base_last: CountColumn
    new_last: CountColumn
    delta: CountColumn
    delta_ratio: RatioColumn
    base_min: CountColumn
    new_min: CountColumn
    base_max: CountColumn
    new_max: CountColumn
    base_step: CountColumn
    new_step: CountColumn
    status: WordColumn


def compare_scalars(base: RunData, new: RunData) -> Table[DiffScalars]:
    """Return the tags of two runs side by side.

    Raises:
        MissingData: No tag is in both.
    """
    then, now = (
        {(row.tag, line_name(row.line, row.writer)): row for row in data.scalar_tags()} for data in (base, new)
    )
    if not then.keys() & now.keys():
        raise MissingData(
            msg("views.no_scalars_in_common", "the runs have no tag of a scalar in common"),
            msg("views.list_scalars", "list their tags: visualprof view scalars"),
        )
    keys = sorted(then.keys() | now.keys())
    return Table(columns=from_rows(DiffScalars, [(*key, *_values(then.get(key), now.get(key))) for key in keys]))


def _values(base: ScalarTag | None, new: ScalarTag | None) -> tuple[object, ...]:
    """Return the values of a row from `base_last` on."""
    then, now = base.last if base else None, new.last if new else None
    delta = now - then if then is not None and now is not None else None
    pairs = [(getattr(side, name) if side else None) for name in ("min", "max", "last_step") for side in (base, new)]
    status = "added" if base is None else "removed" if new is None else "same" if then == now else "changed"
    return then, now, delta, delta / abs(then) if delta is not None and then else None, *pairs, status
