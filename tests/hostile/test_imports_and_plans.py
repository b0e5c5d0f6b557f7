"""Batches of another time or another plan: old archives, and plans that hide fields."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from catalog.contract.plans import PLANS
from catalog.sandbox.sandbox import Sandbox
from resources.http.client import CatalogClient
from resources.ingest.puller import Puller
from tests.crashes.pulls import DAY, FIRST_DAY, FROM, SOURCE, UNTIL, AtTime
from tests.crashes.tables import published, whole
from tests.hostile.conftest import catalog
from tests.hostile.good_days import WRONG_DAY, Good, Row, text
from tests.hostile.test_released import query_rows
from tests.unlimited import Unlimited
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.landing import import_export

LONG_AGO = FIRST_DAY - 90 * DAY
COVERS = (FROM, UNTIL)


def archived(good: Good, folder: Path, days_ago: int) -> Path:
    """Write an export as it was days before the first batch: fewer events, other titles."""
    at = FIRST_DAY - timedelta(days=days_ago)
    rows: list[Row] = []
    for row in good.rows:
        if row["createdAt"] < text(at):
            older = {**row, "title": f"{row['title']}, {days_ago} days ago"}
            rows.append(older | {"updatedAt": row["createdAt"]})
    path = folder / f"{days_ago}.csv"
    path.write_bytes(good.csv(rows))
    return path


def imported(good: Good, home: Home, folder: Path, days_ago: int) -> str:
    return import_export(
        home.landing,
        archived(good, folder, days_ago),
        content_at=FIRST_DAY - timedelta(days=days_ago),
        plan="elite",
        source=SOURCE,
        now=WRONG_DAY,
        covers=COVERS,
    ).batch_id


@pytest.mark.parametrize("order", [(5, 20, 10)])
def test_archives_older_than_all_batches_can_be_imported_in_any_order(
    order: tuple[int, ...], good: Good, tmp_path: Path
) -> None:
    home, at_once = Home(tmp_path / "home"), Home(tmp_path / "at_once")
    for target in (home, at_once):
        good.land_before(target.landing)
    merge(home)
    for days_ago in order:
        batch_id = imported(good, home, tmp_path, days_ago)
        merge(home)
        attested = query_rows(
            home, "SELECT status, good FROM batches WHERE batch_id = $b", b=batch_id
        )
        assert attested[0][0] == "merged"
        assert attested[0][1] > 100
    for days_ago in (5, 10, 20):
        imported(good, at_once, tmp_path, days_ago)
    merge(at_once)
    assert whole(home) == whole(at_once)
    for days_ago in (20, 10, 5):
        as_of = f"{FIRST_DAY - timedelta(days=days_ago):%Y-%m-%d %H:%M:%S+00}"
        query = (
            "SELECT DISTINCT regexp_extract(title, ', [0-9]+ days ago$') "
            f"FROM events_as_of('{as_of}')"
        )
        assert query_rows(home, query) == [(f", {days_ago} days ago",)]


def test_a_garbage_archive_is_quarantined_and_changes_nothing(good: Good, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    good.land_before(home.landing)
    before = catalog(home)
    path = tmp_path / "archive.csv"
    path.write_bytes(b"<html>not found</html>")
    batch = import_export(
        home.landing, path, content_at=LONG_AGO, plan="elite", source=SOURCE, now=WRONG_DAY,
        covers=(date(2026, 1, 1), date(2026, 3, 1)),
    )  # fmt: skip
    assert catalog(home) == before
    query = "SELECT status, why FROM batches WHERE batch_id = $b"
    assert query_rows(home, query, b=batch.batch_id) == [
        ("quarantined", "the export is an HTML page")
    ]


@pytest.mark.parametrize(
    "plan", ["free", *(pytest.param(name, marks=pytest.mark.long) for name in ("standard", "pro"))]
)
def test_a_plan_that_hides_fields_writes_no_history_and_hides_no_known_field(
    plan: str, good: Good, almanac_sandbox: Sandbox, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    good.land_before(home.landing)
    merge(home)
    before = published(home.warehouse)
    query = "SELECT event_id, impact, description, source_url FROM events ORDER BY ALL"
    known = query_rows(home, query)
    time = AtTime()
    # The content of the list of the first day, by the freshness of the plan.
    time.now = FIRST_DAY + timedelta(hours=7, minutes=5, days=plan == "free")
    key = almanac_sandbox.new_key(plan)
    with CatalogClient(
        almanac_sandbox.base_url, key, limiter=Unlimited(), transport=time
    ) as client:
        puller = Puller(
            client, home.landing, plan=PLANS[plan], source=SOURCE, clock=lambda: time.now
        )
        landed = puller.events(time.now.date(), time.now.date() + 6 * DAY)
    assert landed.rows > 20
    outcomes = {outcome.manifest.batch_id: outcome for outcome in merge(home).outcomes}
    outcome = outcomes[landed.manifest.batch_id]
    assert (outcome.status, outcome.rejected) == ("merged", 0)
    changed = {name for name, digest in published(home.warehouse).items() if digest != before[name]}
    seen_first = query_rows(
        home, "SELECT count(*) FROM event_versions WHERE plan = $plan", plan=plan
    )
    assert changed <= {"events", "batches", "coverage"} or seen_first[0][0]
    kept = dict((row[0], row) for row in query_rows(home, query))
    assert [kept[row[0]] for row in known] == known
