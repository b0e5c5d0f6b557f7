"""Only a batch that fails is quarantined: no other is folded twice or lost silently, and none is
quarantined for an error in Almanac."""

import json
import signal
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.core.errors import WarehouseError
from almanac.core.progress import listening
from tests.history.stories.handmade import HandmadeHome, event
from tests.reading import ask
from tests.warehouse.landed_days import FIRST, became, history, land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history import fold
from warehouse.history.merge import merge, rebuild
from warehouse.history.observations import Observation, Outcome
from warehouse.home import Home
from warehouse.landing.batches import Manifest

DAYS = 5
BAD_DAYS = (1, 3)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def _with_bad_rows(*, good: int, bad: int) -> bytes:
    rows = [{**json_event(), "id": f"good-{number}"} for number in range(good)]
    rows += [{**json_event(), "id": f"bad-{number}", "date": "soon"} for number in range(bad)]
    return json.dumps({"data": rows, "meta": {}}).encode()


def fail_on(
    patched: pytest.MonkeyPatch, where: str, batches: list[Manifest], error: Exception
) -> None:
    """Make a function of the fold fail for some batches."""
    right = getattr(fold, where)

    def failing(*given: Any, **named: Any) -> Any:
        if any(batch in given for batch in batches):
            raise error
        return right(*given, **named)

    patched.setattr(fold, where, failing)


def test_failing_batches_on_several_days_are_quarantined_without_a_second_fold(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = [land(home, day) for day in range(DAYS)]
    bad = [landed[day] for day in BAD_DAYS]
    histories: list[Any] = []
    for where in ("normalise", "find_visible_scope"):
        folded: list[str] = []
        with (
            monkeypatch.context() as patched,
            listening(phase=lambda name, *_, to=folded: to.append(name)),
        ):
            fail_on(patched, where, bad, duckdb.ConversionException("odd"))
            report = rebuild(home)
        assert folded.count("fold batches") == DAYS
        assert [outcome.manifest for outcome in report.quarantined] == bad
        histories.append(history(home))
    assert histories[0] == histories[1]
    assert ask(home, "SELECT count(*) FROM events") == [(DAYS - len(BAD_DAYS),)]


def test_a_batch_whose_second_group_of_deliveries_fails_is_quarantined_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = HandmadeHome(tmp_path)
    story.listed("01 06:00", event("a"), event("b"))
    story.merge()
    before = story.rows("FROM event_versions ORDER BY ALL")
    story.deliveries(
        ("01 10:00", "2026-03-01T09:59:00Z", event("a", title="Second a")),
        ("01 12:00", "2026-03-01T11:59:00Z", event("b", title="Third b")),
    )
    story.listed("01 11:00", event("a"), event("b"))
    right = fold.Fold._fold_deliveries

    def fail_second(folding: fold.Fold, observation: Observation, outcome: Outcome) -> None:
        if observation.positions == (1,):
            raise duckdb.ConversionException("odd")
        right(folding, observation, outcome)

    with monkeypatch.context() as patched:
        patched.setattr(fold.Fold, "_fold_deliveries", fail_second)
        report = story.merge()
    assert [outcome.manifest.feed for outcome in report.quarantined] == ["deliveries"]
    assert sorted(story.rows("SELECT feed, status FROM batches")) == [
        ("deliveries", "quarantined"),
        *[("events", "merged")] * 2,
    ]
    assert story.rows("FROM event_versions ORDER BY ALL") == before
    assert story.home.landing.pending() == []


OWN = [
    AttributeError("no such thing", obj=fold),
    NameError("nor this"),
    duckdb.BinderException("column not found"),
    duckdb.CatalogException("table not found"),
    duckdb.InternalException("broken"),
]
OF_THE_BATCH = [
    AttributeError("'str' has no get", obj="a text where an object was expected"),
    duckdb.OutOfRangeException("too large"),
    duckdb.InvalidInputException("odd"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
    TypeError("odd"),
]


def test_an_error_in_almanac_stops_a_merge_and_sets_no_good_batch_aside(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = land(home, 0), land(home, 1)
    for error in OWN:
        with monkeypatch.context() as patched:
            fail_on(patched, "normalise", [batch], error)
            with pytest.raises(WarehouseError, match=rf"{batch.batch_id}.*{type(error).__name__}"):
                merge(home)
        assert home.landing.pending() == [before.batch_id, batch.batch_id]
    merge(home)
    assert became(home, batch) == ("merged", "")


def test_a_signal_in_a_query_sets_no_batch_aside(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB raises a RuntimeError for it, as for an unexpected error."""
    batch = land(home, 0)

    def endless(connection: duckdb.DuckDBPyConnection, *_: object, **__: object) -> None:
        # A main thread that waits for another one sees the signal only when that one ends.
        connection.execute("SET threads = 1")
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        connection.execute(
            "SELECT sum(i * i % 7) FROM range(1_000_000_000_000) AS r (i)"
        ).fetchall()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(fold, "normalise", endless)
            with pytest.raises(KeyboardInterrupt):
                merge(home)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert home.landing.pending() == [batch.batch_id]
    merge(home)
    assert became(home, batch) == ("merged", "")


def test_an_error_by_content_quarantines_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = cycle(("normalise", "find_visible_scope"))
    for day, (step, error) in enumerate(zip(steps, OF_THE_BATCH, strict=False)):
        bad = land(home, day)
        with monkeypatch.context() as patched:
            fail_on(patched, step, [bad], error)
            report = merge(home)
        (outcome,) = report.outcomes
        assert outcome.status == "quarantined"
        assert f"reading or folding it failed: {type(error).__name__}" in (outcome.why or "")
        (problem,) = report.problems
        assert "A release does not help" in str(problem)


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (b"<!DOCTYPE html><html></html>", "Leave it: it has no readable row"),
        (_with_bad_rows(good=0, bad=12), "Leave it: it has no readable row"),
        (_with_bad_rows(good=1, bad=12), "To merge its readable rows anyway: almanac batches rel"),
    ],
)
def test_a_release_is_advised_if_a_row_can_be_read(body: bytes, advice: str, home: Home) -> None:
    land(home, 0)
    batch = land(home, 1, body=body)
    (problem,) = merge(home).problems
    assert problem.kind == "quarantined"
    assert advice in str(problem)
    # Why: a release trusts the batch, also in what it does not have.
    home.landing.release(batch.batch_id)
    merge(home)
    missing = ask(home, "SELECT event_id FROM events WHERE missing_since IS NOT NULL")
    assert missing == [("event-0",)]


def test_a_batch_with_an_unknown_plan_is_quarantined_and_the_others_are_merged(home: Home) -> None:
    odd, good = land(home, 0, plan="gold"), land(home, 1)
    report = merge(home)
    (problem,) = [problem for problem in map(str, report.problems) if "'gold'" in problem]
    assert "A release does not help" in problem
    assert became(home, odd)[0] == "quarantined"
    assert became(home, good) == ("merged", "")
    assert home.landing.pending() == []
    home.landing.release(odd.batch_id)
    merge(home)
    assert became(home, odd)[0] == "quarantined"


def test_a_rebuild_that_quarantines_a_merged_batch_names_it_with_the_reason(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, never = land(home, 0), land(home, 1, plan="gold")
    assert merge(home).lost == {}
    with monkeypatch.context() as patched:
        fail_on(patched, "normalise", [good], duckdb.ConversionException("odd date"))
        report = rebuild(home)
        assert [*report.lost] == [good.batch_id], "the other one never took part"
        assert "odd date" in report.lost[good.batch_id]
        assert [note for note in report.notes if good.batch_id in note and "odd date" in note]
        assert rebuild(home).lost == {}
    assert rebuild(home).lost == {}
    assert [became(home, item)[0] for item in (good, never)] == ["merged", "quarantined"]
    with monkeypatch.context() as patched:
        fail_on(patched, "normalise", [good], duckdb.ConversionException("odd date"))
        assert [*merge(home, refold_from=FIRST.date()).lost] == [good.batch_id]
