"""Queries for events, coverage and history, as known at a timestamp."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from typing import Any, Final, Literal

from almanac.coins import Coin, resolve_slugs
from almanac.core.errors import FutureTime, InvalidArgument, QueryRefused, UnknownName
from almanac.core.statements import Statements
from almanac.core.timestamps import (
    Duration,
    TimestampLike,
    include_day,
    read_calendar_time,
    read_duration,
    read_number,
    read_past_time,
    read_timestamp,
)
from almanac.reader import Reader
from almanac.results import Result

Estimated = Literal["include", "drop", "only"]
Basis = Literal["observed", "claimed"]
Names = str | Iterable[str]
Coins = str | Coin | Iterable[str | Coin]
MinImpact = float | str
"""A score from 0 to 10, or the name of a band, which is its lowest score."""

STATUSES: Final = ("scheduled", "cancelled", "withdrawn")
KINDS: Final = (
    *("created", "rescheduled", "made_exact", "made_estimated", "rescored", "revised"),
    *("cancelled", "withdrawn", "restored", "revealed"),
)
BANDS: Final = ((0.0, "Low"), (2.5, "Mid"), (5.0, "High"), (7.5, "Critical"))
"""Lowest score and name of each band, where a plan shows no score (decisions: impact bands)."""
_LEAST: Final = {name.lower(): least for least, name in BANDS}
_MOST: Final = 10
STALE_AFTER: Final = timedelta(hours=36)
"""A home is pulled each day; data whose last pull is older is stale."""
_SQL = Statements("almanac")


class EventQueries:
    """Queries for events; a part of `Database`."""

    _reader: Reader

    def events(
        self,
        as_of: TimestampLike | None = None,
        coins: Coins | None = None,
        categories: Names | None = None,
        window: tuple[TimestampLike | None, TimestampLike | None] | None = None,
        status: Names | None = "scheduled",
        min_impact: MinImpact | None = None,
        basis: Basis = "observed",
    ) -> Result:
        """Return the events as they were known at a timestamp: one row per event.

        Args:
            as_of: the timestamp; None is now. `date` and every other column are as known then.
            coins: slugs, tickers, names or pairs; events that are linked to any of them.
            categories: names; events that have any of them.
            window: from and to of the event date; either may be None. The last day is included; a
                bound with a time is exclusive. A bound without a zone is compared with the calendar
                days of events as it stands. An event whose date is a period is included if the
                period overlaps the window; a deadline is the end of a period that began when the
                event was first seen.
            status: `scheduled`, `cancelled`, `withdrawn`, several of them, or `all`.
            min_impact: the least score, 0 to 10, or a band such as `High`. Where the plan shows
                only a band, the whole band must reach it; an unknown score does not.
            basis: `observed` is what was pulled by then; `claimed` also takes what the service says
                of the time before the first observation, which it may have edited since.

        Raises:
            InvalidArgument: an argument is wrong, or `as_of` is still to come.
            QueryRefused: nothing was observed yet at `as_of`.
            UnknownName, AmbiguousCoin: a coin or category does not exist, or is not unique.
        """
        with self._reader.pinned():
            check_choice(basis, "basis", ("observed", "claimed"))
            at = read_known_at(self._reader, as_of, "as_of")
            if basis == "observed":
                claimed = ', or basis="claimed" for what the service says of earlier times'
                check_observed(self._reader, at, "as_of", as_of, claimed)
            values = {
                "at": at,
                "basis": basis,
                "statuses": read_choices(status, "status", STATUSES),
                **make_window_values(self._reader, window),
                **make_filter_values(self._reader, coins, categories, min_impact, at),
            }
            return self._reader.result(_SQL["events"], values)

    def upcoming(
        self,
        coins: Coins | None = None,
        within: Duration = "14d",
        as_of: TimestampLike | None = None,
        estimated: Estimated = "include",
        categories: Names | None = None,
        min_impact: MinImpact | None = None,
    ) -> Result:
        """Return the events that were still to come, or in progress, at a timestamp.

        One row per event that was scheduled, not missing, and not over, and that could begin within
        the time; soonest first. An estimated event is a period or a deadline: its `date_exact` is
        NULL, and it is included while its period can still begin in time; `estimated` may also be
        `drop`, or `only`. `categories` and `min_impact` select as in `events`.

        Raises: as `events`.
        """
        with self._reader.pinned():
            check_choice(estimated, "estimated", ("include", "drop", "only"))
            at = read_observed(self._reader, as_of, "as_of")
            values = {
                "at": at,
                "until": at + read_duration(within, "within"),
                "estimated": estimated,
                **make_filter_values(self._reader, coins, categories, min_impact, at),
            }
            return self._reader.result(_SQL["upcoming"], values)

    def changes(
        self,
        since: TimestampLike | Duration,
        until: TimestampLike | Duration | None = None,
        kinds: Names | None = None,
        coins: Coins | None = None,
        min_impact: MinImpact | None = None,
        categories: Names | None = None,
    ) -> Result:
        """Return what became known after `since`, until `until`, with old and new values.

        One row per version and kind of change, oldest first. `since` may be `today`, `yesterday` or
        an age, such as `7d` or a timedelta.
        `kinds` are change kinds such as `rescheduled`, `rescored` or `cancelled`. `coins`,
        `categories` and `min_impact` select as in `events`.

        Raises: as `events`.
        """
        if since is None:
            raise InvalidArgument(
                "since=None: expected a timestamp, such as 2026-03-02 or yesterday"
            )
        with self._reader.pinned():
            after = read_observed(self._reader, since, "since")
            before = read_known_at(self._reader, until, "until")
            if before < after:
                raise InvalidArgument(f"until={until!r} is before since={since!r}")
            values = {
                "since": after,
                "until": before,
                "kinds": read_choices(kinds, "kinds", KINDS),
                **make_filter_values(self._reader, coins, categories, min_impact, before),
            }
            return self._reader.result(_SQL["changes"], values)

    def announcements(
        self,
        of: str = "created",
        since: TimestampLike | Duration | None = None,
        until: TimestampLike | Duration | None = None,
        coins: Coins | None = None,
        min_impact: MinImpact | None = None,
        categories: Names | None = None,
    ) -> Result:
        """Return when each event first had a kind of change: `events=` of an event study of news.

        One row per event and coin: `event_id`, `coin`, `title`, `categories`, `impact` and
        `impact_band` as then known; `date` and `known_from` are both the time at which the change
        became known, `event_date` is the date of the event. `of` is a kind, such as `created`,
        `revealed` (first seen, but created before: not news of that time), `rescheduled` or
        `cancelled`. `since` None is the first pull; the other arguments select as in `changes`.

        Raises: as `events`.
        """
        kinds = read_choices(of, "of", KINDS)
        with self._reader.pinned():
            before = read_known_at(self._reader, until, "until")
            first = find_pulls(self._reader, before)[0]
            after = first or before
            if since is not None:
                after = read_observed(self._reader, since, "since")
            values = {
                "since": after,
                "until": before,
                "kinds": kinds,
                **make_filter_values(self._reader, coins, categories, min_impact, before),
            }
            return self._reader.result(_SQL["announcements"], values)

    def history(self, event_id: str, basis: Basis = "observed") -> Result:
        """Return every version of an event, oldest first, from `known_from` to `known_to`.

        `event_id` may also be the slug of one event.

        Raises:
            UnknownName: no event with this id was observed.
            InvalidArgument: several events have this slug.
        """
        is_claimed = check_choice(basis, "basis", ("observed", "claimed")) == "claimed"
        if not isinstance(event_id, str):
            raise InvalidArgument(
                f"event_id={event_id!r} is a {type(event_id).__name__}; expected a text, the id of "
                "one event, as in db.history('a525fad29b019f637d38d2af')"
            )
        name = "history_and_claims" if is_claimed else "history"
        found = self._reader.result(_SQL[name], {"event_id": event_id})
        if len(found) == 0:
            values = {"event_id": self._find_event(event_id)}
            found = self._reader.result(_SQL[name], values)
        return found

    def _find_event(self, text: str) -> str:
        """Return the id of the one event with this id in any case, or with this slug."""
        rows = self._reader.rows(_SQL["ids_named"], {"text": text})
        ids = [row["event_id"] for row in rows]
        if len(ids) > 1:
            raise InvalidArgument(
                f"event_id={text!r} is the slug of {len(ids)} events: {', '.join(ids[:5])}. Give "
                "the id of one"
            )
        if not ids:
            raise UnknownName(
                f"no event with the id or slug {text!r} was ever observed; db.events() lists the "
                "ids of events"
            )
        return str(ids[0])

    def first_release(self, event_id: str) -> dict[str, Any]:
        """Return what was known of an event when it was first observed, as a dict.

        Raises: as `history`.
        """
        return self._shown(event_id)[0]

    def vintage_dates(self, event_id: str) -> list[datetime]:
        """Return the timestamps at which what was known of an event changed, oldest first.

        Raises: as `history`.
        """
        return [row["known_from"] for row in self._shown(event_id)]

    def known_before(
        self, lead: Duration = "3d", categories: Names | None = None, basis: Basis = "observed"
    ) -> Result:
        """Return each event with an exact date as it was known `lead` before that date.

        `known_at` is the timestamp, `date_final` the date as last known, `date` the date as known
        then. The timestamp is computed from the final date. In a back-test keep only rows with
        `date = date_final`: in other rows the final date was not yet known.

        Raises: as `events`.
        """
        with self._reader.pinned():
            values = {
                "lead": read_duration(lead, "lead"),
                "now": self._reader.now(),
                "categories": resolve_categories(self._reader, categories),
                "basis": check_choice(basis, "basis", ("observed", "claimed")),
            }
            return self._reader.result(_SQL["known_before"], values)

    def coverage(self, as_of: TimestampLike | None = None) -> "Coverage":
        """Return which event dates had been pulled by a timestamp, now by default.

        Raises:
            InvalidArgument: it is not a timestamp, or still to come.
        """
        with self._reader.pinned():
            at = read_known_at(self._reader, as_of, "as_of")
            first, last = find_pulls(self._reader, at)
            # The macro refuses a timestamp before the first pull; no window was covered then.
            name = "no_coverage" if first is None else "coverage_at"
            windows = self._reader.result(_SQL[name], {"at": at} if first else {})
        return Coverage(at, first, last, windows, self._reader.tz)

    def date_survival(
        self, as_of: TimestampLike | None = None, days: float | Iterable[float] = (7, 30, 90)
    ) -> Result:
        """Return the share of events that keep their first known date so many days, with censoring.

        One row per `category`, `date_precision` (None: all of them) and `after_days`: `events`,
        `left_date` and `at_risk` (their numbers), `share`, and `low` to `high`, its 95 % interval.
        Nothing that became known after `as_of` (None: now) is used. The rules: docs/sql.md.

        Raises: as `events`.
        """
        with self._reader.pinned():
            at = read_observed(self._reader, as_of, "as_of")
            is_several = isinstance(days, Iterable) and not isinstance(days, str)
            given: Any = days if is_several else (days,)
            ages = [read_number(age, "days") for age in given]
            if not ages or not all(age and 0 < age < float("inf") for age in ages):
                raise InvalidArgument(f"days={days!r}; expected numbers of days above 0")
            return self._reader.result(_SQL["date_survival"], {"at": at, "days": ages})

    def slip_rates(
        self,
        as_of: TimestampLike | None = None,
        days: float = 30,
        *,
        category: str | None = None,
    ) -> Result:
        """Return what became of the events that were upcoming at a timestamp, within some days.

        One row per `category` (None: all events), `distance` to the date and `date_precision`
        (None: all of them): `cohort`, the number of events; how many of them `slipped`, were
        `pulled_in`, `refined`, `loosened`, `cancelled` or `withdrawn`, or `held`; and each as a
        share of the cohort. `as_of` None is so many days before the last pull. With `category`,
        rows of this category alone. The rules: docs/sql.md.

        Raises: as `events`; InvalidArgument: the days end after the last pull.
        """
        with self._reader.pinned():
            number = read_number(days, "days")
            if not number or not 0 < number < float("inf"):
                raise InvalidArgument(f"days={days!r}; expected a number of days above 0")
            last = find_pulls(self._reader, self._reader.now())[1]
            if as_of is None and last is not None:
                as_of = last - timedelta(days=number)
            at = read_observed(self._reader, as_of, "as_of")
            values = {"at": at, "days": number, "category": find_category(self._reader, category)}
            return self._reader.result(_SQL["slip_rates"], values)

    def _shown(self, event_id: str) -> list[dict[str, Any]]:
        """Return the versions without those that another replaced at the same time."""
        rows = self.history(event_id).rows()
        return [row for row in rows if row["known_from"] != row["known_to"]]


def read_known_at(reader: Reader, given: TimestampLike | Duration | None, name: str) -> datetime:
    """Return the timestamp of a query. None means now: the clock, or the last pull if later."""
    now = reader.now()
    if given is None:
        return now
    found = read_past_time(given, name, reader.tz, now=now)
    if found > now:
        raise FutureTime(
            f"{name}={_show(given)} is still to come: the time is {_show(now)}. Nobody knows yet "
            "what will be known then; give a timestamp up to now."
        )
    return found


def read_observed(reader: Reader, given: TimestampLike | Duration | None, name: str) -> datetime:
    """Return the timestamp of a query, at or after the first pull."""
    at = read_known_at(reader, given, name)
    check_observed(reader, at, name, given)
    return at


def check_observed(
    reader: Reader,
    at: datetime,
    name: str,
    given: TimestampLike | Duration | None,
    advice: str = "",
) -> None:
    """Check that a pull was made at or before the timestamp of a query."""
    first = reader.publication().first_pull_at
    if first is None:
        raise QueryRefused(
            "no pull of events was merged yet, so nothing is known. `almanac run` of the "
            "application pulls and publishes them."
        )
    if at < first:
        raise QueryRefused(
            f"{name}={_show(given)} is before the first pull of events, at "
            f"{_show(first)}: nothing was known then. Give a later time{advice}."
        )


def _show(given: TimestampLike | Duration | None) -> str:
    """Return a timestamp for a message: in UTC, without parts of a second; a text as given."""
    if isinstance(given, datetime):
        at = given.astimezone(UTC) if given.tzinfo else given
        return at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return repr(given)


def make_window_values(
    reader: Reader, window: tuple[TimestampLike | None, TimestampLike | None] | None
) -> dict[str, datetime | None]:
    """Return the bounds of a window of event dates, the last day included; None means no bound.

    `lower` and `upper` are for dates that are timestamps; `lower_day` and `upper_day` for those
    that are days and periods, which have no zone.
    """
    if window is None:
        return dict.fromkeys(("lower", "upper", "lower_day", "upper_day"))
    bounds: list[Any] = []
    if not isinstance(window, str | set | dict):
        with suppress(TypeError):
            bounds = list(window)
    if len(bounds) != 2:
        raise InvalidArgument(f"window={window!r}: expected two timestamps, (from, to)")
    (begin, end), now = bounds, reader.now()
    if end is not None:
        bounds[1] = include_day(end, "to", reader.tz, now=now)
    lower, upper, lower_day, upper_day = (
        None if bound is None else read(bound, name, reader.tz, now=now)
        for read in (read_timestamp, read_calendar_time)
        for name, bound in zip(("from", "to"), bounds, strict=True)
    )
    if lower is not None and upper is not None and upper <= lower:
        raise InvalidArgument(f"to={_show(end)} is not after from={_show(begin)}")
    return {"lower": lower, "upper": upper, "lower_day": lower_day, "upper_day": upper_day}


def resolve_categories(reader: Reader, categories: Names | None) -> list[str] | None:
    """Return the categories of a filter in small letters."""
    if categories is None:
        return None
    rows = reader.rows(_SQL["category_names"])
    known = {row["category"].lower(): row["category"] for row in rows}
    given = _words(categories)
    if isinstance(categories, str) and categories.strip().lower() not in known:
        given = [name for name in categories.split(",") if name.strip()] or given
    for name in given:
        if name.strip().lower() not in known:
            near = get_close_matches(name.lower(), known, 3, 0.4) or sorted(known)[:5]
            similar = ", ".join(known[match] for match in near)
            raise UnknownName(f"no event has the category {name!r}. Similar: {similar or 'none'}.")
    return [name.strip().lower() for name in given]


def find_category(reader: Reader, category: str | None) -> str | None:
    """Return the name of a category as the service spells it. Raises UnknownName."""
    found = resolve_categories(reader, category)
    return found[0] if found else None


def read_choices(given: Names | None, name: str, allowed: Sequence[str]) -> list[str] | None:
    """Return the values of a filter as a list; None and `all` select everything.

    Capitals do not count, and a space is an underscore.
    """
    if given is None:
        return None
    words = [word for text in _words(given) for word in text.split(",")]
    words = [word.strip().lower().replace(" ", "_").replace("-", "_") for word in words]
    return None if "all" in words else [check_choice(word, name, allowed) for word in words]


def _words(given: Names) -> list[str]:
    is_one = isinstance(given, str) or not isinstance(given, Iterable)
    return [str(word) for word in ((given,) if is_one else given)]


def check_choice(given: str, name: str, allowed: Sequence[str]) -> str:
    """Return the given text if it is an allowed value."""
    if not isinstance(given, str) or given not in allowed:
        raise InvalidArgument(f"{name}={given!r}; expected {', '.join(allowed)}")
    return given


def read_min_impact(given: MinImpact | None) -> float | None:
    """Return the least score: a number, its text, or the lowest score of a band in any case."""
    score: Any = _LEAST.get(given.strip().lower(), given) if isinstance(given, str) else given
    try:
        least = read_number(score, "min_impact")
    except InvalidArgument:
        least = -1
    if least is not None and not 0 <= least <= _MOST:
        names = ", ".join(name for _, name in BANDS)
        raise InvalidArgument(
            f"min_impact={given!r}; expected a score from 0 to {_MOST}, or {names}"
        )
    return least


def make_impact_values(min_impact: MinImpact | None) -> dict[str, Any]:
    """Return the values of the filter for impact: a score, and the bands wholly above it."""
    least = read_min_impact(min_impact)
    bands = [] if least is None else [name for low, name in BANDS if low >= least]
    return {"min_impact": least, "bands": bands}


def make_filter_values(
    reader: Reader,
    coins: Coins | None,
    categories: Names | None,
    min_impact: MinImpact | None,
    at: datetime | None = None,
) -> dict[str, Any]:
    """Return the values of the filters that every list of events has; ranks are as of `at`."""
    return {
        "coins": resolve_slugs(reader, coins, at),
        "categories": resolve_categories(reader, categories),
        **make_impact_values(min_impact),
    }


_EVENT_FEEDS: Final = ("export", "events")


@dataclass(frozen=True, slots=True)
class Coverage:
    """The pulls up to a timestamp.

    Attributes:
        as_of: the timestamp, UTC.
        first_pull_at, last_pull_at: the first and the last pull of events by then, UTC; None if
            there was none: then nothing was known.
        windows: the last complete pull of each feed, plan, window and filters, as a Result.
        tz: the zone of the database, of which timestamps without a zone are.
    """

    as_of: datetime
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    windows: Result = field(repr=False)
    tz: tzinfo = field(default=UTC, repr=False)

    def covers(self, date: TimestampLike, *, within: Duration = "2d") -> bool:
        """Whether an unfiltered pull, at most `within` before the timestamp, covered an event date.

        A date without a time is a UTC day, like the dates of events.

        Elsewhere, the absence of an event proves nothing. A pull on the plan Free shows only the
        coins listed that day. The column `watched` of `attach_known` shows whether a coin was
        covered.
        """
        wanted, age_max = read_calendar_time(date, "date", self.tz), read_duration(within, "within")
        if wanted.time() != time():
            wanted = read_timestamp(date, "date", self.tz)
        return any(
            row["feed"] in _EVENT_FEEDS
            and not row["coins"]
            and not row["categories"]
            and (row["lower"] is None or row["lower"] <= wanted)
            and (row["upper"] is None or wanted <= row["upper"])
            and self.as_of - row["observed_at"].astimezone(UTC) <= age_max
            for row in self.windows.rows()
        )

    @property
    def age(self) -> timedelta | None:
        """The time from the last pull of events to the timestamp; None if there was none."""
        return None if self.last_pull_at is None else self.as_of - self.last_pull_at


def find_pulls(reader: Reader, at: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last pull of events by a timestamp; None if there was none."""
    (pulls,) = reader.rows(_SQL["pulls_of_events"], {"at": at})
    return pulls["first_pull_at"], pulls["last_pull_at"]


def is_stale(last_pull_at: datetime | None, at: datetime) -> bool:
    """Whether the last pull was too old at a timestamp, or there was none."""
    return last_pull_at is None or at - last_pull_at > STALE_AFTER
