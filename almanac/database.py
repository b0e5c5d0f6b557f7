"""The public database object: each question of an analyst is a method."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from almanac import coins as coin_names
from almanac import plots
from almanac.coins import Coin
from almanac.core.errors import InvalidArgument, UnknownName
from almanac.core.progress import describing
from almanac.core.statements import Statements
from almanac.core.timestamps import (
    Duration,
    TimestampLike,
    TimeUnit,
    read_duration,
    read_zone,
    refuse_ambiguous_time,
    to_python_number,
    utc_now,
)
from almanac.events import (
    Basis,
    Coins,
    EventQueries,
    MinImpact,
    Names,
    check_choice,
    find_category,
    read_known_at,
)
from almanac.history_replay import Replay
from almanac.joins import Joins
from almanac.reader import Ambiguous, CoinTexts, Publication, Reader, find_file
from almanac.reading.query_limits import QueryLimits
from almanac.results import Result
from almanac.user_files import local_path, read_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from almanac.audit.report import Audit
    from almanac.study.options import Bound, StudyOptions
    from almanac.study.report import Study

_SQL = Statements("almanac")


def open_database(
    home: str | Path | None = None,
    tz: str | tzinfo = "UTC",
    *,
    follow: bool = True,
    limits: QueryLimits | None = None,
    clock: Callable[[], datetime] = utc_now,
    coins_are: CoinTexts = "any",
    ambiguous: Ambiguous = "raise",
    trust_clock: bool = False,
) -> "Database":
    """Open a published warehouse for reading.

    Args:
        home: a home of the application, or a `warehouse.duckdb`, also a copy on another machine.
            None is the folder `data`, where the application keeps it by default.
        tz: the zone of timestamps in results, and of timestamps without a zone in arguments. It is
            never the zone of the machine. Dates of events stay in UTC, and so do answers of `sql`:
            an event of a day is of a UTC day in every zone.
        follow: whether a newer publication is read from the next question on.
        limits: memory, threads, spilled bytes and seconds of a query.
        clock: returns the time, aware.
        coins_are: `slug` takes every text of a coin for a slug, such as those that this package
            writes; `any` takes slugs, tickers and names, and refuses a text that is, say, the slug
            of one coin and the ticker of another. `ticker` takes every text for a ticker.
        ambiguous: `largest` reads a text of several coins as the coin with the best rank at the
            time of the question, or of each row of a frame. If none of them had a rank then, it is
            an error, as with `raise`. The `notes` of a result, and the column `coin_slug` of a
            frame, say which coin was taken.
        trust_clock: whether now is the time of the clock even if the last pull is later, as on the
            virtual clock of a replay.

    Returns:
        A context manager; leaving it closes the file.

    Raises:
        WarehouseError: there is no such file, or it can't be opened.
        InvalidArgument: there is no such zone.
    """
    file = find_file("data" if home is None else home)
    check_choice(coins_are, "coins_are", get_args(CoinTexts))
    check_choice(ambiguous, "ambiguous", get_args(Ambiguous))
    reader = Reader(
        file,
        tz=read_zone(tz),
        follow=follow,
        limits=limits,
        clock=clock,
        coins_are=coins_are,
        ambiguous=ambiguous,
        trust_clock=trust_clock,
    )
    return Database(reader)


def _reopen(recipe: dict[str, Any]) -> "Database":
    """Open a database from its pickle, in another process as a rule."""
    frames = recipe.pop("frames")
    database = open_database(**recipe)
    for name, frame in frames.items():
        database.register(name, frame)
    return database


class Database(EventQueries, Joins):
    """A published warehouse, open for reading; made by `almanac.open`.

    Readers and publications do not block each other. A `Result` stays as it was read. A pickle of a
    database opens the same path again, as joblib and multiprocessing do in each worker.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Results stay readable."""
        self._reader.close()

    def __repr__(self) -> str:
        file, zone = str(self._reader.file), str(self._reader.tz)
        return f"almanac.open({file!r}, tz={zone!r}{self._reader.state}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickle state: the path to open again, with zone, limits and registered
        frames."""
        return _reopen, (self._reader.recipe(),)

    @property
    def path(self) -> Path:
        """The file that is read."""
        return self._reader.file

    @property
    def publication(self) -> Publication:
        """The publication that the next query reads: its `id`, and `published_at`, UTC."""
        return self._reader.publication()

    @property
    def reader(self) -> Reader:
        """The reader of the file, for other parts of this package."""
        return self._reader

    def sql(self, query: str, **params: Any) -> Result:
        """Run one statement that reads; `$name` in it takes its value from `params`.

        The statement can access the warehouse and registered frames only. It runs in this process,
        within the limits of `open`, as far as DuckDB enforces them. In SQL text, a timestamp
        without a zone is UTC, whatever the zone of `open`.

        Raises:
            InvalidArgument: a value is a timestamp without a zone, and `open` had another than UTC.
            QueryRefused: it would write, fails, or takes too long; the message says how.
        """
        if not isinstance(query, str):
            raise InvalidArgument(f"query={query!r}: expected a text, one SQL statement")
        for name, value in params.items():
            refuse_ambiguous_time(value, name, self._reader.tz)
        values = {name: to_python_number(value) for name, value in params.items()}
        return self._reader.result(query, values, own=False)

    def register(self, name: str, frame: Any) -> None:
        """Make a frame (pandas, Polars, Arrow) a table of `sql`, until the database is closed.

        The index of a pandas frame becomes its first columns, with the names of its levels, unless
        it is the number of the row (integers without a name). A level without a name is `ts` if it
        has timestamps, else `index`, or `level_` and its number.

        Raises:
            InvalidArgument: the warehouse has a table of this name, it is not a frame, two columns
                have the same name but for capitals, or a column has timestamps without a zone, and
                `open` had another than UTC; or the file can't be read in full.
        """
        if isinstance(frame, str | Path):
            frame = read_table(local_path(frame, "frame"))
        self._reader.register(name, frame)

    def audit(
        self,
        signals: Any,
        *,
        decided_at: str | None = None,
        fields: Mapping[str, str | None] | None = None,
        basis: Basis = "observed",
        universe: Mapping[str, Any] | None = None,
        unit: TimeUnit | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> "Audit":
        """Find back-test rows that used future information.

        Args:
            signals: one row per use: a frame (pandas, Polars, Arrow), a pyarrow reader or dataset,
                or the path of a Parquet or CSV file, or of a folder of Parquet files. A million
                rows are read at a time; findings and verdicts stay in memory. A row has `event_id`
                (or `coin` and `date`), the time of the decision, and the values of the event that
                were used, in columns named as in `events`: `date`, `impact`, `status` and others.
                Without values it asks whether the event was known.
            decided_at: the column of the decision; by default `decided_at` or `ts`. A timestamp
                without a zone is of the zone of the database; what is known at the very timestamp
                counts as known.
            fields: columns with other names, such as `{"score": "impact"}`; None leaves one out.
            basis: `observed` is what was pulled by then; `claimed` also takes what the service says
                of the time before the first observation. The answer counts where they differ.
            universe: the rule that selected the rows, as of each decision: `within` (events that
                begin later, at most so long after it) or `lead` (events whose date is so long after
                its UTC day), and `coins`, `categories`, `min_impact` and `status` as in
                `events`. `every`, beside `within`, is the time between decisions, some of which
                have no row. `Audit.universe` lists the events that the rule selects and the rows
                lack, and the reverse.
            unit: the unit of timestamps that are numbers, as in `attach_known`.
            progress: called with a line of text for each step and million rows; `print` will do.

        Raises:
            InvalidArgument: the rows can't be read, or have no column that is needed.
        """
        from almanac.audit.audit import audit

        with describing(progress):
            return audit(
                self._reader,
                signals,
                decided_at=decided_at,
                fields=fields,
                basis=basis,
                universe=universe,
                unit=unit,
            )

    def event_study(
        self,
        prices: Any,
        coins: Coins | None = None,
        categories: Names | None = None,
        min_impact: MinImpact | None = None,
        lead: Duration | None = None,
        window: "tuple[Bound, Bound]" = ("-3d", "3d"),
        market: Any = None,
        *,
        events: Any = None,
        basis: Basis = "observed",
        confidence: float = 0.95,
        unit: TimeUnit | None = None,
        options: "StudyOptions | None" = None,
    ) -> "Study":
        """Return abnormal returns around events, each taken as it was known at entry.

        Entry is the event's date, as known at entry, less `lead`. An event enters if it was then
        known, scheduled, not missing, and had that date; it enters once. Later changes have no
        effect: bar 0 stays the bar of that date, and an event that is cancelled later stays. No bar
        counts that starts before the entry. All rules and formulas: docs/backtests.md.

        Args:
            prices: a frame (pandas, Polars, Arrow), or a Parquet or CSV file: `ts`, `coin`,
                `close`, maybe `open`; or `ts` (or a timestamp index) and one column of prices per
                coin. Coins are slugs, tickers, names or pairs such as `BTC/USDT`. A name that no
                coin has, or that several have, counts in the market alone.
            coins: the coins whose events enter. Or a mapping: names in the prices, or tickers, each
                with its coin; it selects nothing. Columns called `open`, `high`, `close` and so on
                are only read as coins if they are named here.
            categories, min_impact: filters, on the event as known at entry.
            lead: the time before the date at which it must be known; None is 3 days, or no time if
                each `date` of `events` is its `known_from`, as in `announcements`.
            window: the first and last bar that are cumulated, from the bar of the event: numbers of
                bars, or times such as `-12h`.
            market: a coin of the prices, or a Series, frame or file of prices; None is the
                equal-weighted mean of the other coins in the prices. A mapping has the market of
                each coin; coins that are not in it have that mean.
            events: a frame or file of your own instead of the warehouse's events: `event_id`,
                `coin` (as in the prices, or another name of the same coin), `date`, and maybe
                `known_from`, `categories`, `impact`.
            basis: as in `events`.
            confidence: of the band.
            unit: the unit of timestamps that are numbers, as in `attach_known`.
            options: the model, the bars and the draws: `StudyOptions`.

        Returns:
            A `Study`: `table`, `tests`, `headline`, `events`, `excluded`, `counts`, `naive`,
            `redenominations`, `by(…)`, `plot()`, `to_html()`.

        Raises:
            InvalidArgument: an argument or the prices can't be used, no event can, or scipy is not
                installed (`crypto-almanac[study]`).
            UnknownName, AmbiguousCoin: a coin of an argument does not exist, or is not unique; or
                each name in the prices is ambiguous.
        """
        from almanac.study.options import StudyOptions
        from almanac.study.study import event_study

        return event_study(
            self._reader,
            prices,
            options or StudyOptions(),
            coins=coins,
            categories=categories,
            min_impact=min_impact,
            lead=lead,
            window=window,
            market=market,
            events=events,
            basis=basis,
            confidence=confidence,
            unit=unit,
        )

    def replay(
        self,
        since: TimestampLike,
        until: TimestampLike | None = None,
        *,
        coins: Coins | None = None,
        kinds: Names | None = None,
    ) -> Replay:
        """Return the changes after `since`, until `until`, one by one, in order of knowledge.

        It reads the newest publication to its end, in a connection of its own. Timestamps of the
        changes are in UTC. `until` None is the last pull; `coins` selects changes of events that
        are or were linked to any of them, `kinds` kinds of change such as `rescheduled`.

        Raises: as `events`.
        """
        return Replay(self._reader.open_again(), since, until, coins=coins, kinds=kinds)

    def coins(self) -> Result:
        """Return the coins as last seen, by rank: `slug`, `symbol`, `name`, `rank` and others.

        Ranks and names are current. For a back-test, use `universe`.
        """
        return self._reader.result(_SQL["all_coins"])

    def universe(self, as_of: TimestampLike, top: int | None = None) -> Result:
        """Return the coins listed at a timestamp, by rank; `top` is the last rank, or None for all.

        Columns: `coin`, `symbol`, `name`, `rank`, `tracked`, by the last complete pull until then;
        symbol and name are current.

        Raises: as `events`.
        """
        top = to_python_number(top)
        if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
            raise InvalidArgument(f"top={top!r}; expected a rank, 1 or more")
        if as_of is None:
            raise InvalidArgument("as_of=None; expected 'now' or a timestamp")
        with self._reader.pinned():
            at = read_known_at(self._reader, as_of, "as_of")
            return self._reader.result(_SQL["universe"], {"at": at, "top": top})

    def categories(self) -> Result:
        """Return the categories by name, each with the numbers of its events.

        Columns: `category`, `category_id`, `events` (all of them, whenever first seen), `upcoming`
        (of these, as `upcoming`), `mean_impact` (0 to 10, of those with a score).
        """
        return self._reader.result(_SQL["all_categories"])

    def tables(self, name: str | None = None) -> Result:
        """Return the tables, views and macros that `sql` can read: `name`, `kind` and
        `description`.

        With the name of a table or view its columns: `column`, `type`, `description`, with the
        unit in square brackets.

        Raises:
            UnknownName: there is no table or view of this name; the message names similar ones.
        """
        if name is None:
            return self._reader.result(_SQL["tables"])
        found = self._reader.result(_SQL["columns"], {"name": str(name)})
        if len(found) == 0:
            names = list(self.tables()["name"])
            near = ", ".join(get_close_matches(str(name).lower(), names, 3)) or "none"
            raise UnknownName(f"there is no table or view {name!r}. Similar: {near}.")
        return found

    def plot_date(
        self, event_id: str, path: str | Path | None = None, *, ax: "Axes | None" = None
    ) -> "Axes":
        """Plot how the date of an event moved, over the time at which each date was known.

        As each plot, it needs the extra `plot`, draws on `ax` if given, saves the figure to `path`
        if given, in the format of its suffix, and returns the Axes.

        Raises: as `history`; InvalidArgument: matplotlib is not installed.
        """
        versions, now = self._shown(event_id), self._reader.now()
        return plots.draw(partial(plots.draw_date, versions, now), path, ax)

    def plot_slips(
        self,
        category: str | None = None,
        as_of: TimestampLike | None = None,
        days: float = 30,
        path: str | Path | None = None,
        *,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Plot `slip_rates`: which share of dates slipped, by precision and distance.

        Raises: as `slip_rates`.
        """
        category = find_category(self._reader, category)
        found = self.slip_rates(as_of, days, category=category).rows()
        split = [
            row
            for row in found
            if row["category"] == category and row["distance"] and row["date_precision"]
        ]
        title = f"{category or 'All events'}: dates that slipped within {days:g} days"
        return plots.draw(partial(plots.draw_slips, split, title), path, ax)

    def plot_survival(
        self,
        category: str | None = None,
        as_of: TimestampLike | None = None,
        path: str | Path | None = None,
        *,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Plot `date_survival`: the share of dates that still stand after so many days.

        Raises: as `date_survival`.
        """
        category = find_category(self._reader, category)
        found = self.date_survival(as_of, range(1, 366, 4)).rows()
        rows = [row for row in found if row["category"] == category]
        title = f"{category or 'All events'}: dates that still stand"
        return plots.draw(partial(plots.draw_survival, rows, title), path, ax)

    def plot_coverage(self, path: str | Path | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """Plot the complete pulls of each feed, and the gaps between them."""
        pulls = self._reader.rows(_SQL["pulls_of_feeds"])
        return plots.draw(partial(plots.draw_coverage, pulls), path, ax)

    def plot_calendar(
        self,
        coins: Coins | None = None,
        within: Duration = "90d",
        as_of: TimestampLike | None = None,
        path: str | Path | None = None,
        *,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Plot the upcoming events, a lane per coin: the given coins, or the twenty with most.

        Raises: as `upcoming`.
        """
        at = read_known_at(self._reader, as_of, "as_of")
        events = self.upcoming(coins, within, at).rows()
        counts = Counter(coin for row in events for coin in row["coins"])
        chosen = coin_names.resolve_slugs(self._reader, coins)
        lanes = chosen or [coin for coin, _ in counts.most_common(20)]
        until = at + read_duration(within, "within")
        return plots.draw(partial(plots.draw_calendar, events, lanes, at, until), path, ax)

    def resolve(self, coin: str | Coin) -> Coin:
        """Return the coin with this slug, ticker, name or pair such as `BTC/USDT`, in any case.

        `slug:bitcoin`, `symbol:BTC` and `name:Bitcoin` say what the text is, here and in every
        other argument and column of coins. A `Coin` is accepted wherever a text is.

        Raises:
            AmbiguousCoin: the text stands for several coins; the message lists them as `slug:…`.
            UnknownName: none has it; the message names similar ones.
        """
        return coin_names.resolve_coins(self._reader, [coin])[0]
