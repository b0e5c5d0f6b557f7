"""Plots: what is on the Axes equals the tables."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure

import almanac
from almanac import plots
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known
from tests.warehouse.answers.test_statistics import dated

mpl.use("Agg")
SEEN = datetime(2026, 3, 2, 6, tzinfo=UTC)
DAY = timedelta(days=1)
NOW = SEEN + 5 * DAY


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[almanac.Database]:
    moved = [dated("2026-03-31 23:59:59", "month"), dated("2026-03-20"), dated("2026-03-25")]
    versions = [
        Known(event_id="moved", version=n, known_from=SEEN + n * DAY - DAY, title="$a$", **fields)
        for n, fields in enumerate(moved, start=1)
    ]
    versions += [
        Known(event_id="gone", known_from=SEEN, **dated("2026-03-21")),
        Known(
            event_id="gone",
            version=2,
            known_from=SEEN + DAY,
            status="cancelled",
            **dated("2026-03-21"),
        ),
        Known(event_id="held", known_from=SEEN, coins=("bitcoin",), **dated("2026-03-09")),
    ]
    file = tmp_path_factory.mktemp("plots") / "warehouse.duckdb"
    publish_by_hand(file, versions, pulls=[SEEN, SEEN + DAY, NOW])
    with almanac.open(file, clock=lambda: NOW) as db:
        yield db


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def test_the_path_of_a_date_has_a_band_and_a_line_per_version(
    db: almanac.Database, ax: Axes
) -> None:
    assert db.plot_date("moved", ax=ax) is ax
    assert ax.get_title() == "$a$"
    rows = db.history("moved").rows()
    assert [[*line.get_ydata()] for line in ax.lines[:2]] == [[row["date"]] * 2 for row in rows[1:]]
    known = [line.get_xdata() for line in ax.lines[:2]]
    assert [[*xs] for xs in known] == [
        [rows[1]["known_from"], rows[2]["known_from"]],
        [rows[2]["known_from"], NOW],
    ]
    (band,) = ax.collections
    box = band.get_datalim(ax.transData)
    assert (box.y0, box.y1) == (date2num(rows[0]["earliest"]), date2num(rows[0]["latest"]))


def test_a_cancelled_date_has_a_cross(db: almanac.Database, ax: Axes) -> None:
    db.plot_date("gone", ax=ax)
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [[*line.get_xdata()] for line in crosses] == [[SEEN + DAY]]
    assert [text.get_text() for text in ax.texts] == ["cancelled"]


def test_bars_of_slips_are_the_shares_of_the_table(db: almanac.Database, ax: Axes) -> None:
    rates = db.slip_rates(SEEN, 4).rows()
    total = next(row for row in rates if row["distance"] is row["date_precision"] is None)
    assert (total["cohort"], total["refined"], total["cancelled"], total["held"]) == (3, 1, 1, 1)
    db.plot_slips(as_of=SEEN, days=4, ax=ax)
    split = [row for row in rates if row["distance"] and row["date_precision"]]
    heights = sorted(bar.get_height() for bar in ax.patches)  # type: ignore[attr-defined]
    assert heights == sorted(row["slipped_share"] for row in split)
    assert sorted(text.get_text() for text in ax.texts) == sorted(str(r["cohort"]) for r in split)


def test_survival_has_a_line_per_precision_until_its_share_is_unknown(ax: Axes) -> None:
    rows = [
        {"date_precision": "day", "after_days": days, "share": share, "low": low, "high": share}
        for days, share, low in ((1, 1.0, None), (5, 0.8, 0.6), (9, None, None))
    ]
    plots.draw_survival(rows, "all", ax)
    (line,) = ax.lines
    assert [*zip(line.get_xdata(), line.get_ydata(), strict=True)] == [(1, 1.0), (5, 0.8)]


def test_survival_of_events_that_are_too_few_is_empty(db: almanac.Database, ax: Axes) -> None:
    assert not [*db.plot_survival(ax=ax).lines]
    assert [text.get_text() for text in ax.texts] == ["nothing to show"]


def test_coverage_has_a_mark_per_pull_and_a_band_per_gap(db: almanac.Database, ax: Axes) -> None:
    db.plot_coverage(ax=ax)
    assert {len(line.get_xdata()) for line in ax.lines} == {3}
    assert len(ax.collections) == len(ax.lines), "three days without a pull are a gap"


def test_the_calendar_has_a_lane_per_coin(db: almanac.Database, ax: Axes) -> None:
    db.plot_calendar("bitcoin", ax=ax)
    assert ax.get_xlim() == (date2num(NOW), date2num(NOW + 90 * DAY))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["bitcoin"]
    (marks,) = ax.collections
    assert [x for x, _ in marks.get_offsets()] == [date2num(datetime(2026, 3, 9, tzinfo=UTC))]  # type: ignore[union-attr]


def test_a_plot_is_saved_by_its_suffix(db: almanac.Database, ax: Axes, tmp_path: Path) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        db.plot_coverage(tmp_path / name, ax=ax)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(almanac.InvalidArgument, match=r"ends in one of .*png"):
        db.plot_coverage(tmp_path / "a.doc", ax=ax)
    with pytest.raises(almanac.InvalidArgument, match=r"the folder .* does not exist"):
        db.plot_coverage(tmp_path / "no" / "a.png", ax=ax)


def test_plots_of_nothing_and_of_many_rows_are_drawn(ax: Axes) -> None:
    plots.draw_slips([], "none", ax)
    plots.draw_survival([], "none", ax)
    plots.draw_coverage([], ax)
    plots.draw_calendar([], [], SEEN, NOW, ax)
    plots.draw_date([], SEEN, ax)
    row = {
        "coins": ["a"],
        "date_exact": SEEN,
        "impact_band": None,
        "earliest": SEEN,
        "latest": SEEN,
    }
    plots.draw_calendar([row] * 50_000, ["a"], SEEN, NOW, ax)
    assert len(ax.collections[-1].get_offsets()) == 50_000  # type: ignore[arg-type]


def test_without_matplotlib_the_error_names_the_extra(
    db: almanac.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(almanac.InvalidArgument, match=r"crypto-almanac\[plot\]"):
        db.plot_coverage()
