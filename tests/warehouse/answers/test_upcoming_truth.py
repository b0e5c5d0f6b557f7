"""What is still to come agrees with the sandbox around midnight, in any zone of the session.

The truth is plain Python over the sandbox's world: the events as they were at the content time of
the last pull, within its scope, each until the end of its interval.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import pytest

from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.truth import TrueEvent
from catalog.sandbox.world.world import World
from tests.history.stories.disk import without_syncs
from tests.history.stories.story import Setting, StoryBuilder
from tests.warehouse.answers.plain.dating import DAY, dating
from tests.warehouse.answers.plain.views import text_at_now
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Manifest

ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati"]
AHEAD_DAYS = {"standard": 90, "pro": None, "elite": None}
STARTS = datetime(2018, 6, 30, tzinfo=UTC)
MIDNIGHTS = [STARTS + DAY, STARTS + 8 * DAY]
"""The end of a quarter, and a day with many events that have no time."""
INSTANTS = 500
PULLED = [-80, 30]
"""Minutes from each midnight to the pulls around it."""
Shown = dict[datetime, set[str]]
"""The events that are still to come, by instant."""


@dataclass
class Watched:
    """A home of one plan, and what is still to come: by the truth, and by the published view."""

    home: Home
    truth: Shown = field(default_factory=dict)
    begun: Shown = field(default_factory=dict)
    """Those of the truth whose date is past."""
    by_view: dict[str, Shown] = field(default_factory=dict)


@pytest.fixture(scope="module", params=AHEAD_DAYS)
def watched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    plan, root = str(request.param), tmp_path_factory.mktemp(str(request.param))
    setting = Setting(seed=5, pace=1, starts=STARTS, polls=(), posted=(), look_ups=0)
    with (
        without_syncs(),
        Sandbox(seed=setting.seed, pace=setting.pace, now=setting.starts) as sandbox,
        ExitStack() as stack,
    ):
        builder = StoryBuilder(setting, sandbox, root / "home/landing", root / "scratch", stack)
        yield watch(plan, builder, sandbox, Home(root / "home"))


def watch(plan: str, builder: StoryBuilder, sandbox: Sandbox, home: Home) -> Watched:
    watched = Watched(home)
    random, world = Random(plan), sandbox.truth()
    pulls = [midnight + timedelta(minutes=by) for midnight in MIDNIGHTS for by in PULLED]
    for number, pull_at in enumerate(pulls):
        sandbox.set_clock(pull_at)
        lower = pull_at.date() - (0 if plan == "standard" else 2) * DAY
        ahead = AHEAD_DAYS[plan]
        upper = None if ahead is None else pull_at.date() + ahead * DAY
        batch = builder.pull(plan, lambda puller, days=(lower, upper): puller.events(*days))
        merge(home)
        until = pulls[number + 1] if number % 2 == 0 else pull_at + timedelta(minutes=80)
        instants = plan_run_times(random, batch.observed_at, until)
        events = shown(world, batch)
        ends = [(event.id, latest(event)) for event in events]
        dates = [(event.id, event.date_end or event.date) for event in events]
        for at in instants:
            watched.truth[at] = {event_id for event_id, end in ends if end > at}
            past = {event_id for event_id, date in dates if date < at}
            watched.begun[at] = watched.truth[at] & past
        for zone in ZONES:
            watched.by_view.setdefault(zone, {}).update(by_view(home.warehouse, zone, instants))
    assert len(watched.truth) == INSTANTS
    return watched


def plan_run_times(random: Random, first: datetime, until: datetime) -> list[datetime]:
    """Return instants from a pull to the next, with the seconds around a midnight between them."""
    midnight = until.replace(hour=0, minute=0, second=0, microsecond=0)
    edges = [midnight + timedelta(microseconds=by) for by in (-1_000_000, -1, 0, 1, 1_000_000)]
    span = (until - first) // timedelta(seconds=1)
    others = [first + timedelta(seconds=second) for second in random.sample(range(1, span), 125)]
    chosen = [at for at in edges if first < at < until]
    return sorted([*chosen, *[at for at in others if at not in chosen]][:125])


def shown(world: World, batch: Manifest) -> list[TrueEvent]:
    """Return the events that a pull showed."""
    lower, upper = batch.scope.lower, batch.scope.upper
    assert lower is not None
    return [
        event
        for event in world.events_at(batch.content_at).values()
        if (event.date_end or event.date) >= lower and (upper is None or event.date <= upper)
    ]


def latest(event: TrueEvent) -> datetime:
    return dating(event.date, event.date_end, event.date_type, is_open=event.is_estimated)[2]


def by_view(warehouse: Path, zone: str, instants: list[datetime]) -> Shown:
    """Return the rows of the published view at instants, in a zone of the session."""
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        connection.execute("SET TimeZone = $zone", {"zone": zone})
        sql = f"""
            SELECT epoch_us(i.moment), list(v.event_id)
            FROM (SELECT unnest($instants::TIMESTAMPTZ[]) AS moment) AS i,
                LATERAL ({text_at_now(connection, "upcoming_events", "i.moment")}) AS v
            GROUP BY i.moment
        """
        found: Shown = {at: set() for at in instants}
        for at, event_ids in connection.execute(sql, {"instants": instants}).fetchall():
            found[datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)] = {*event_ids}
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_upcoming_events_around_midnight_are_those_of_the_truth(
    watched: Watched, zone: str
) -> None:
    assert differing(watched.truth, watched.by_view[zone]) == []
    # A view that compared dates with now() would leave these out.
    just_after = MIDNIGHTS[1] + timedelta(seconds=1)
    assert len(watched.begun[just_after]) >= 5
    assert len({frozenset(events) for events in watched.truth.values()}) > len(MIDNIGHTS)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("share", [50, pytest.param(1, marks=pytest.mark.long)])
def test_upcoming_as_of_instants_around_midnight_are_those_of_the_truth(
    watched: Watched, zone: str, share: int
) -> None:
    instants = sorted(watched.truth)[ZONES.index(zone) % share :: share]
    edges = [at for at in watched.truth if at in MIDNIGHTS]
    assert edges
    found = {}
    with duckdb.connect(str(watched.home.warehouse), read_only=True) as connection:
        connection.execute("SET TimeZone = $zone", {"zone": zone})
        for at in {*instants, *edges}:
            sql = "SELECT event_id FROM upcoming_as_of($at)"
            found[at] = {event_id for (event_id,) in connection.execute(sql, {"at": at}).fetchall()}
    assert differing({at: watched.truth[at] for at in found}, found) == []


def differing(expected: Shown, found: Shown) -> list[str]:
    """Return the instants at which events are wrongly shown or left out."""
    assert expected.keys() == found.keys()
    return [
        f"{at}: {len(found[at] - expected[at])} too many, {len(expected[at] - found[at])} left out"
        for at in sorted(expected)
        if expected[at] != found[at]
    ]
