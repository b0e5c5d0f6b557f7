"""The benchmark of growth measures a day after each number of days."""

from pathlib import Path

import pytest

from bench.growth import measure_growth, show_costs


@pytest.mark.long
def test_a_day_is_measured_after_each_number_of_days(tmp_path: Path) -> None:
    first, second = measure_growth(tmp_path / "home", 200, [1, 4], 2)
    assert (first.days, second.days, second.events) == (1, 4, 200)
    assert first.versions < second.versions
    assert min(first.median_s, first.mean_s, first.land_s, first.warehouse_mb) > 0
    assert second.home_mb > second.warehouse_mb
    show_costs([first, second])
