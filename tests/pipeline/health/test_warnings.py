"""The ten warnings: when each begins, the command that helps, and when it ends."""

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.health.facts import (
    Coverage,
    FailedWork,
    FeedHealth,
    Gap,
    Health,
    PushHealth,
    QuotaHealth,
    RunNote,
    SuspectBatch,
)
from pipeline.health.warnings import WARNINGS, find_warnings, read_health
from resources.request_log import DeferredPull
from tests.pipeline.small_home import DAY, NOW, SmallHome
from tests.warehouse.inbox.deliveries import delivery, store
from warehouse.files.locks import hold_lock
from warehouse.history.merge import merge, rebuild
from warehouse.landing.inbox import Inbox

ROOT = Path(__file__).parents[3]
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PULLED = Health(NOW, NOW, source="sandbox:1", coverage=Coverage(since=NOW.date()))
"""A home without a cause for a warning."""


def problem(kind: str, *, days_ago: float = 1) -> SuspectBatch:
    return SuspectBatch(kind, "a-batch", NOW - days_ago * DAY, "page 2 broke", 7)  # type: ignore[arg-type]


def feed(stale_since: datetime | None, complete_at: datetime | None = NOW) -> FeedHealth:
    return FeedHealth("coins", 1, NOW, complete_at, 0.0, 86_400, True, stale_since, "")


def quota(remaining: int, projected: int) -> QuotaHealth:
    counts = (100, 100 - remaining, remaining)
    return QuotaHealth(NOW, "ledger", "pro", *counts, False, NOW + 9 * DAY, 5.0, projected)


def failed(job: str = "daily", *, days_ago: float = 1) -> RunNote:
    return RunNote(NOW, (FailedWork(job, "2026-03-01", "0123456789", NOW - days_ago * DAY),))


def push(**given: object) -> PushHealth:
    return PushHealth(
        **{"is_expected": True, "is_running": True, "silent_after": DAY, "last_at": NOW, **given}  # type: ignore[arg-type]
    )


def deferred(hours_ago: float) -> list[DeferredPull]:
    at = NOW - hours_ago * HOUR
    return [DeferredPull(work="daily", feed="export", noted_at=at, resume_at=at, why="the quota")]


CAUSES: tuple[tuple[str, dict[str, object], str], ...] = (
    ("stale", {"coverage": Coverage()}, "No complete pull of events yet: almanac run"),
    (
        "stale",
        {"feeds": [feed(NOW - DAY)]},
        "for 36 hours: coins (last 2026-03-02 12:00 UTC). almanac run",
    ),
    ("stale", {"feeds": [feed(NOW, None)]}, "for 36 hours: coins (never pulled). almanac run"),
    (
        "stale",
        {"coverage": Coverage(NOW.date(), 1, [Gap((NOW - DAY).date(), (NOW - DAY).date())])},
        "No complete pull of events on 2026-03-01: events that were announced and removed",
    ),
    ("stale", {"ends_at": NOW + 89 * DAY}, "retires this version of its interface on 2026-05-30"),
    (
        "work",
        {"deferred": deferred(25)},
        "daily export should have resumed at 2026-03-01 11:00 UTC",
    ),
    (
        "work",
        {"runs": failed()},
        "Run 01234567 of daily of 2026-03-01 failed at 2026-03-01 12:00 UTC: almanac run",
    ),
    ("work", {"runs": failed("my_merge")}, "almanac merge, or re-execute it"),
    ("batches", {"pending": 2, "waiting_since": NOW - 61 * MINUTE}, "2 batches wait to be merged"),
    ("batches", {"problems": [problem("incomplete")]}, "a-batch (page 2 broke): almanac run"),
    ("batches", {"problems": [problem("quarantined", days_ago=99)]}, "almanac batches list"),
    ("batches", {"problems": [problem("undated")]}, "almanac doctor"),
    (
        "rejected",
        {"problems": [problem("rejected")]},
        "7 rows of the last 2 days could not be read",
    ),
    (
        "quota",
        {"quota": quota(0, 100)},
        "of 100 is used up until 2026-03-11 12:00 UTC: almanac budget",
    ),
    ("quota", {"quota": quota(9, 101)}, "will run out: 101 by 2026-03-11 12:00 UTC, at 5 a day"),
    (
        "push",
        {"push": push(last_at=NOW - DAY - MINUTE)},
        "runs, and no delivery was received since",
    ),
    ("push", {"push": push(is_running=False, last_at=None)}, "does not run, and no delivery"),
    (
        "push",
        {"push": push(is_running=False, is_expected=False, last_at=NOW - 6 * DAY)},
        "since 2026-02-24 12:00 UTC: start it",
    ),
    ("push", {"push": push(waiting=2, waiting_since=NOW - 61 * MINUTE)}, "2 deliveries wait"),
    ("push", {"push": push(rejected=["one\ntwo\x1b[31m"])}, "the newest one two"),
    ("daemon", {"runs": RunNote(at=NOW, daemon_at=NOW - 16 * MINUTE)}, "Start almanac daemon"),
    ("disk", {"free_bytes": 1_500_000_000}, "The disk has 1.5 GB free: free space on it"),
    ("damaged", {"unreadable": "IOException"}, "almanac rebuild makes it new"),
    ("damaged", {"damaged": ["a", "b"]}, "2 batches damaged in landing and left out, the newest b"),
    (
        "damaged",
        {"outdated": ["parquet/x"], "published_at": NOW - 61 * MINUTE},
        "Without the last publication: 1 file, the first parquet/x",
    ),
    ("secrets", {"cautions": ["others can read the key file"]}, "others can read the key file"),
    ("secrets", {"problems": [problem("key_repeated", days_ago=99)]}, "repeated the API key in 1"),
)


@pytest.mark.parametrize(("kind", "facts", "text"), CAUSES)
def test_each_cause_turns_one_warning_on(kind: str, facts: dict[str, object], text: str) -> None:
    health = replace(PULLED, **facts)  # type: ignore[arg-type]
    found = {name: sentence for name, find in WARNINGS.items() if (sentence := find(health))}
    assert found.keys() == {kind}
    assert text in found[kind]
    assert found[kind].isprintable()


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"source": None, "coverage": Coverage()},
        {"deferred": deferred(23)},
        {"runs": failed(days_ago=8)},
        {"runs": failed("merge"), "published_at": NOW},
        {"runs": RunNote(at=NOW, daemon_at=NOW - 8 * DAY)},
        {"pending": 2, "waiting_since": NOW - 59 * MINUTE},
        {"problems": [problem("incomplete", days_ago=3), problem("rejected", days_ago=3)]},
        {"quota": quota(9, 99)},
        {"push": push(last_at=NOW - DAY)},
        {"push": push(last_at=NOW - 9 * DAY, started_at=NOW - HOUR)},
        {"push": push(is_running=False, last_at=NOW - 14 * MINUTE)},
        {"push": push(is_running=False, is_expected=False, last_at=NOW - 8 * DAY)},
        {"push": push(waiting=2, waiting_since=NOW - 59 * MINUTE)},
        {"free_bytes": 2_000_000_000},
        {"outdated": ["parquet/x"], "published_at": NOW - 59 * MINUTE},
        {"ends_at": NOW + 91 * DAY},
    ],
)
def test_no_warning_is_on_without_a_cause_or_too_early(facts: dict[str, object]) -> None:
    health = replace(PULLED, **facts)  # type: ignore[arg-type]
    assert [find(health) for find in WARNINGS.values()] == [None] * len(WARNINGS)


def test_every_warning_has_a_cause_here_and_a_row_in_the_docs() -> None:
    page = (ROOT / "docs/operate.md").read_text().partition("\n## Warnings\n")[2]
    rows = [
        row.split(" | ")
        for row in page.partition("\n| asset | check |")[0].splitlines()
        if row.startswith("| `")
    ]
    assert all(len(row) == 3 and all(row) for row in rows)
    documented = [re.findall("`([a-z_]+)", row[0])[0] for row in rows]
    assert documented == list(WARNINGS) and len(WARNINGS) <= 10
    assert {kind for kind, _, _ in CAUSES} == WARNINGS.keys()
    assert all(find.__doc__ for find in WARNINGS.values())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two merged days."""
    small = SmallHome(tmp_path_factory.mktemp("warned") / "home")
    small.land(at=datetime.now(UTC) - DAY)
    small.land(at=datetime.now(UTC), body=b'{"data": [ ]}')
    merge(small.home)
    small.home.root.chmod(0o700)
    return small.home.root


@pytest.fixture
def small(made: Path, tmp_path: Path) -> SmallHome:
    shutil.copytree(made, tmp_path / "home")
    return SmallHome(tmp_path / "home")


def kinds(small: SmallHome, later: timedelta = 2 * HOUR) -> list[str]:
    found = find_warnings(small.settings, small.home, datetime.now(UTC) + later)
    assert str(small.home.root) not in str(found)
    return [kind for kind, text in found.items() if text]


def test_push_is_read_from_the_inbox(small: SmallHome) -> None:
    assert read_health(small.settings, small.home, NOW).push is None
    now = datetime.now(UTC)
    store(small.home, now - timedelta(minutes=1), delivery(1, at=now), b"[]")
    found = read_health(small.settings, small.home, now).push
    assert found is not None and found.waiting_since is not None
    assert (found.is_expected, found.is_running, found.waiting) == (False, False, 2)
    Inbox(small.home).land(lambda: now)
    with hold_lock(small.home.receiver_lock, "to receive"):
        found = read_health(small.settings, small.home, now).push
    assert found is not None and (found.is_running, found.waiting) == (True, 0)
    assert len(found.rejected) == 1 and found.last_at is not None
    secret = SecretStr("a-secret-of-the-endpoint")
    expecting = SmallHome(small.home.root, webhook_secrets=secret)
    assert read_health(expecting.settings, small.home, now).push.is_expected  # type: ignore[union-attr]


def test_a_home_that_cannot_be_read_is_warned_of_and_nothing_else_is_judged(
    small: SmallHome,
) -> None:
    (small.home.root / "home.json").write_text("{")
    found = find_warnings(small.settings, small.home, NOW)
    assert found.keys() == {"damaged"} and "(WarehouseError)" in str(found["damaged"])


def test_harm_is_warned_of_until_the_command_in_the_warning_was_run(small: SmallHome) -> None:
    assert kinds(small) == []
    small.home.warehouse.unlink()
    assert kinds(small) == ["batches"]
    merge(small.home)
    assert kinds(small) == []
    small.home.warehouse.unlink()
    small.home.warehouse.write_bytes(b"no database")
    assert "damaged" in kinds(small)
    rebuild(small.home)
    assert kinds(small) == []
