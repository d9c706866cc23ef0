"""Points far above their neighbors."""

from __future__ import annotations

import numpy as np

from visualprof.views.measure.run_data.spikes import find_spikes


def test_single_slow_steps_are_found_with_the_median_of_their_neighbors() -> None:
    values = np.where(np.arange(1000) % 2, 10.0, 10.2)
    values[[300, 700]] = 40.0, 13.0
    spikes = find_spikes(values, 20)
    assert spikes.row.tolist() == [300, 700]
    assert spikes.median.tolist() == [10.1, 10.1]
    assert find_spikes(values, 1).row.tolist() == [300]


def test_adjacent_spikes_are_one_and_slow_first_steps_are_none() -> None:
    values = np.full(200, 5.0)
    values[:3], values[100:104] = 90.0, (20.0, 30.0, 25.0, 20.0)
    assert find_spikes(values, 20).row.tolist() == [101]


def test_a_lasting_change_and_values_that_are_not_finite_are_no_spikes() -> None:
    values = np.concatenate([np.full(128, 5.0), np.full(128, 8.0)])
    values[200] = np.nan
    assert find_spikes(values, 20).row.tolist() == []
    assert find_spikes(np.array([np.nan, 1.0]), 20).row.tolist() == []
