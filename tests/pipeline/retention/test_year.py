"""A home that runs every day stays small, and is warned of its faults alone, until each ends."""

from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_records_stay_small_and_pages_quick_if_each_of_96_polls_a_day_brings_news(
    tmp_path: Path,
) -> None:
    # Not on top: it brings Dagster's web server, for which every worker would wait for seconds.
    from bench.year.__main__ import BAR_MB, BAR_S
    from bench.year.simulation import Year

    year = Year(tmp_path, news=96, failures=5)
    ends = list(year.days(7))
    assert max(end.mb_before for end in ends) < BAR_MB
    # From the third day on as many runs go as come, and no partition does.
    assert max(end.runs for end in ends[3:]) - min(end.runs for end in ends[3:]) < 30
    assert [end.partitions for end in ends] == sorted(end.partitions for end in ends)
    assert ends[-1].partitions >= len(ends)
    for page, (_, again) in year.page_times().items():
        assert again.cpu_s < BAR_S, page
    assert year.watch.unexplained(year.faults) == [] == year.watch.lasting()


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_each_fault_of_three_months_is_warned_of_until_it_is_remedied(tmp_path: Path) -> None:
    from bench.year.simulation import Year

    year = Year(tmp_path, news=1, failures=2, fault_every=6)
    for _ in year.days(102):
        pass
    assert year.watch.unexplained(year.faults) == [] == year.watch.lasting()
    by_fault = year.watch.by_fault(year.faults)
    assert len(by_fault) >= 14
    assert [found.name for found in by_fault if found.silent or found.late] == []
