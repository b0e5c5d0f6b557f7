"""Reads the published file: finds it, opens it, follows publications, registers frames."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import duckdb

from almanac.core.connections import close_within
from almanac.core.errors import InvalidArgument, QueryRefused, WarehouseError
from almanac.core.statements import NO_VALUES, Statements, distinct_names, quoted
from almanac.core.timestamps import utc_now
from almanac.reading.attached_file import connect, explain_query_errors
from almanac.reading.query_check import reading_relation
from almanac.reading.query_limits import NO_HOOKS, USUAL_LIMITS, QueryLimits, QueryWatch
from almanac.results import Result
from almanac.user_files import local_path

if TYPE_CHECKING:
    import pyarrow as pa


_WHOLE: Final = ("DataFrame", "Table")
"""Frames that can be read more than once."""


def prepare_frame(frame: Any, name: str) -> Any:
    """Return a frame of which DuckDB shows all columns.

    The index of a pandas frame becomes its first columns, unless it is the number of the row:
    integers without a name. A level without a name is `ts` if it has timestamps, else `index`, or
    `level_` and its number. A Series is a frame of one column. A source that can be read
    once, such as an Arrow reader, is read into a table.
    """
    libraries = {kind.__module__.partition(".")[0] for kind in type(frame).__mro__}
    if "pandas" in libraries and hasattr(frame, "index"):
        if hasattr(frame, "to_frame"):
            frame = frame.to_frame("value" if frame.name is None else frame.name)
        frame = _with_index(frame, name)
    elif type(frame).__name__ not in _WHOLE and hasattr(frame, "__arrow_c_stream__"):
        import pyarrow as pa

        frame = pa.table(frame)
    elif not libraries & {"pandas", "polars", "pyarrow"}:
        raise InvalidArgument(
            f"{name!r} can't be a table: it is a {type(frame).__name__}; expected a pandas or "
            "Polars DataFrame, or a pyarrow Table"
        )
    if type(frame).__name__ in _WHOLE:
        names = list(getattr(frame, "column_names", None) or frame.columns)
        _refuse_same(names, name)
        from almanac.frames import holds_periods, refuse_type

        for column in names:
            if holds_periods(frame[column]):
                raise refuse_type(column, "periods", "timestamps")
    return frame


def _with_index(frame: Any, name: str) -> Any:
    import pandas as pd

    if frame.columns.nlevels > 1:
        raise InvalidArgument(
            f"the columns of {name!r} have several levels; expected one. Join their names, as by "
            f"frame.columns = frame.columns.map('_'.join)"
        )
    index = frame.index
    has_name = any(level is not None for level in index.names)
    if index.nlevels == 1 and not has_name and pd.api.types.is_integer_dtype(index.dtype):
        return frame
    names = []
    for place, given in enumerate(index.names):
        default = f"level_{place}" if index.nlevels > 1 else "index"
        if isinstance(index.get_level_values(place), pd.DatetimeIndex):
            default = "ts"
        names.append(default if given is None else given)
    _refuse_same([*names, *frame.columns], name)
    return frame.reset_index(names=names)


def _refuse_same(columns: Sequence[Any], name: str) -> None:
    """Refuse names that are the same in SQL, where capitals do not count."""
    found: dict[str, Any] = {}
    for column in columns:
        key = str(column).lower()
        if key in found:
            raise InvalidArgument(
                f"{name!r} has two columns {found[key]!r} and {column!r}, with the index counted; "
                "SQL does not tell them apart. Rename one; an index that is a column, too, is "
                "dropped by frame.reset_index(drop=True)"
            )
        found[key] = column


CoinTexts = Literal["any", "slug", "ticker"]
"""The meaning of coin texts: slugs, tickers or names, or one of these alone."""
Ambiguous = Literal["raise", "largest"]
"""An ambiguous text is an error, or the coin with the best rank at the time."""
_SQL = Statements("almanac")
_Rows = TypeVar("_Rows")
_Made = TypeVar("_Made")
FILE: Final = "warehouse.duckdb"
_EVENT_DATES: Final = frozenset(
    (*("date", "date_end", "date_exact", "date_final", "earliest", "latest"), *("lower", "upper"))
)
"""Columns that stay in UTC in every zone: a day that is moved to a zone may be another day."""
_ZONELESS: Final = re.compile(r"TIMESTAMP(_(S|MS|NS))?")
_ZONED: Final = "TIMESTAMP WITH TIME ZONE"
_CLOSED: Final = "the database is closed; open it again with almanac.open()"
_NO_TABLE: Final = re.compile(r'Catalog Error: Table with name "?(.+?)"? does not exist')
_NO_FILE: Final = re.compile(r'Cannot access file "(.*?)" - ')
_MISSING: Final = (duckdb.CatalogException, duckdb.BinderException)
"""The file lacks a table, column or macro that a statement of this package uses."""


def find_file(home: str | Path) -> Path:
    """Return the published file of a home, or the file itself."""
    given = local_path(home, "home")
    try:
        file = given / FILE if given.is_dir() else given
        is_there = file.is_file()
    except OSError as error:
        raise WarehouseError(f"home can't be read: {error.strerror}") from error
    if not is_there:
        where = f"there is no file or folder {given.absolute()}"
        if given.is_dir():
            where = f"the folder {given} has no {FILE}"
        raise WarehouseError(
            f"{where}. Expected a published {FILE}, or the folder that holds it (ALMANAC_HOME of "
            "the application). `almanac run` or `almanac merge` of the application makes it."
        )
    return file


class Publication(NamedTuple):
    """A publication: its identifier, when it was made, by the machine clock, its last pull of any
    feed, and its first and last pull of events; None if there was none."""

    id: str
    published_at: datetime
    last_pull_at: datetime | None
    first_pull_at: datetime | None
    last_events_at: datetime | None


class Reader:
    """Reads one published file; a newer publication is opened before the next query.

    Thread-safe: queries run one after the other.
    """

    def __init__(
        self,
        file: Path,
        *,
        tz: tzinfo = UTC,
        follow: bool = True,
        limits: QueryLimits | None = None,
        clock: Callable[[], datetime] = utc_now,
        coins_are: CoinTexts = "any",
        ambiguous: Ambiguous = "raise",
        trust_clock: bool = False,
    ) -> None:
        self.file = file
        self.tz = tz
        self.coins_are = coins_are
        self.ambiguous = ambiguous
        self.clock = clock
        self._options: dict[str, Any] = {
            **{"tz": tz, "limits": limits, "clock": clock, "coins_are": coins_are},
            **{"ambiguous": ambiguous, "trust_clock": trust_clock},
        }
        self._trust_clock = trust_clock
        self._follow = follow
        self._limits = limits or USUAL_LIMITS
        self._lock = threading.RLock()
        self._keeps_publication = not follow
        self._mark: tuple[int, ...] | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._frames: dict[str, Any] = {}
        self._shown_rows: dict[str, _ShownRows] = {}
        """Each statement as it is parsed for the open file, so that it is parsed once."""
        self._made: dict[str, Any] = {}
        """Values of the open file, by the names of `once`."""
        self._is_closed = False
        with self.connection():
            pass

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._lock:
            self._is_closed = True
            self._drop()

    def register(self, name: str, frame: Any) -> None:
        """Make a frame (pandas, Polars, Arrow) a table of the caller's queries."""
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgument(f"name={name!r}: expected a text: the table name")
        frame = prepare_frame(frame, name)
        with self.connection() as connection:
            named = connection.execute(_SQL["published_names"], {"name": name}).fetchall()
            if named:
                # The macros of the publication would read the frame in its place.
                raise InvalidArgument(
                    f"the warehouse has a table {named[0][0]!r}; register the frame under another "
                    f"name, such as 'my_{name}'"
                )
            try:
                connection.register(name, frame)
                shown = connection.view(name)
                types = dict(zip(shown.columns, map(str, shown.types), strict=True))
                connection.unregister(name)
            except duckdb.Error as error:
                raise InvalidArgument(f"{name!r} can't be a table: {error}") from error
            naive = [column for column, kind in types.items() if _ZONELESS.fullmatch(kind)]
            if naive and str(self.tz) != "UTC":
                raise InvalidArgument(
                    f"the column {naive[0]!r} of {name!r} has no zone. SQL reads it as UTC, and "
                    f"not as {self.tz}, the zone of the database. Give it one; in pandas: "
                    f"frame[{naive[0]!r}].dt.tz_localize({str(self.tz)!r})"
                )
            self._frames[name] = frame

    def recipe(self) -> dict[str, Any]:
        """Return the arguments that open the same database in another process, and its frames."""
        with self._lock:
            if self._is_closed:
                raise InvalidArgument(_CLOSED)
            if self._keeps_publication:
                raise InvalidArgument(
                    "a database with follow=False can't be pickled: it keeps the publication that "
                    "it opened, and another process would open the newest. Open it there instead, "
                    "or leave out follow=False"
                )
            return {
                "home": self.file.absolute(),
                **self._options,
                "frames": dict(self._frames),
            }

    @property
    def state(self) -> str:
        """The end of a `repr`, after file and zone."""
        kept = ", follow=False" if self._keeps_publication else ""
        kept += f", coins_are={self.coins_are!r}" if self.coins_are != "any" else ""
        kept += f", ambiguous={self.ambiguous!r}" if self.ambiguous != "raise" else ""
        return kept + ")" + (" (closed)" if self._is_closed else "")

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the connection to the newest publication, for this thread alone."""
        with self._lock:
            if self._is_closed:
                raise InvalidArgument(_CLOSED)
            mark = self._mark_of_file()
            if self._connection is None or (self._follow and mark not in (None, self._mark)):
                self._drop()
                self._connection = connect(self.file, limits=self._limits)
                self._mark = mark
            yield self._connection

    def open_again(self) -> "Reader":
        """Open the newest publication in a connection of its own, which follows no later one."""
        return Reader(self.file, follow=False, **self._options)

    @property
    def newer(self) -> object | None:
        """The mark of a publication that is newer than the open one, and None without one."""
        mark = self._mark_of_file()
        return None if mark == self._mark else mark

    def renew(self, prepare: Callable[["Reader"], None]) -> None:
        """Open the newest publication beside the open one, and read it once it is prepared.

        Queries run on the open one meanwhile. For a reader that does not follow.
        """
        fresh = self.open_again()
        try:
            prepare(fresh)
            with self._lock:
                if not self._is_closed:
                    old = self._connection, self._mark, self._shown_rows, self._made
                    self._connection, self._mark = fresh._connection, fresh._mark
                    self._shown_rows, self._made = fresh._shown_rows, fresh._made
                    fresh._connection, fresh._mark, fresh._shown_rows, fresh._made = old
        finally:
            fresh.close()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep one publication while several queries of one answer run."""
        with self._lock, self.connection():
            follow, self._follow = self._follow, False
            try:
                yield
            finally:
                self._follow = follow

    def query(
        self,
        sql: str,
        values: Mapping[str, Any] = NO_VALUES,
        *,
        frames: Mapping[str, Any] = NO_VALUES,
        own: bool = True,
    ) -> "pa.Table":
        """Run one statement; return its rows, with timestamps in the zone of the database.

        `frames` are tables of this statement alone. `own` marks a statement of the package. Other
        statements can only read, and can use the registered frames.
        """

        def fetch(connection: duckdb.DuckDBPyConnection) -> "pa.Table":
            if own:
                relation = connection.sql(sql, params=dict(values) or None)
            else:
                relation = reading_relation(connection, sql, values)
            return self._finished(relation.to_arrow_table(), own=own)

        return self._run(fetch, frames if own else {**self._frames, **frames}, own=own)

    def rows(self, sql: str, values: Mapping[str, Any] = NO_VALUES) -> list[dict[str, Any]]:
        """Run one statement of the package; return its rows as Python values, in UTC.

        Faster for a few rows, because Arrow is not imported.
        """

        def fetch(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
            shown = self._shown_rows.get(sql)
            if shown is None:
                shown = self._shown_rows[sql] = _show_rows(connection, sql, values)
            fetched = connection.execute(shown.statement, dict(values) or None).fetchall()
            return [
                {
                    name: value.replace(tzinfo=UTC) if is_zoned and value is not None else value
                    for name, value, is_zoned in zip(shown.names, row, shown.is_zoned, strict=True)
                }
                for row in fetched
            ]

        return self._run(fetch, NO_VALUES, own=True)

    def once(self, name: str, make: Callable[[], _Made]) -> _Made:
        """Return a value that is made once for a publication, such as a small dictionary."""
        with self.connection():
            if name not in self._made:
                self._made[name] = make()
            found: _Made = self._made[name]
            return found

    def prepare(
        self,
        name: str,
        sql: str,
        values: Mapping[str, Any] = NO_VALUES,
        *,
        as_of: datetime | None = None,
    ) -> None:
        """Make a temporary table of a statement of the package, once for a publication, and again
        for another `as_of`.

        Later statements read it by its name, at the price of a plain table. The statements of a
        user see it, too: where they run, its name begins with "_almanac".
        """
        table = f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS ({sql}\n)"

        def create(connection: duckdb.DuckDBPyConnection) -> None:
            connection.execute(table, dict(values) or None)

        with self.connection():
            if self._made.get(name) != (as_of,):
                self._run(create, NO_VALUES, own=True)
                self._made[name] = (as_of,)

    def _run(
        self,
        fetch: Callable[[duckdb.DuckDBPyConnection], _Rows],
        frames: Mapping[str, Any],
        *,
        own: bool,
    ) -> _Rows:
        """Fetch rows within the limits, with frames as tables of this statement alone."""
        with self.connection() as connection:
            try:
                for name, frame in frames.items():
                    connection.register(name, frame)
                with explain_query_errors(QueryWatch(connection, self._limits, NO_HOOKS)):
                    return fetch(connection)
            except QueryRefused as error:
                if own and isinstance(error.__cause__, _MISSING):
                    why = str(error).splitlines()[0]
                    raise WarehouseError(
                        f"{self.file} was published by another version of Almanac: {why} "
                        "Nothing was changed. Run `almanac merge` with this version on its home, "
                        "which publishes it again, or install the version that published it."
                    ) from error
                if not own and (advice := self._advice(connection, str(error))) is not None:
                    raise QueryRefused(advice) from error
                raise
            finally:
                for name in frames:
                    connection.unregister(name)

    def result(self, sql: str, values: Mapping[str, Any] = NO_VALUES, **options: Any) -> Result:
        """Run one statement as `query`; return a Result with the notes of the filter `coins`."""
        notes = getattr(values.get("coins"), "notes", ())
        return Result(self.query(sql, values, **options), notes)

    def now(self) -> datetime:
        """Return the timestamp of the newest knowledge: the clock, or the last pull if it is later.

        The service's clock may be ahead of this machine's. With `trust_clock` the clock alone
        counts, as in a replay.
        """
        if self._trust_clock:
            return self.clock()
        last = self.publication().last_pull_at
        at = self.clock()
        return at if last is None else max(at, last)

    def publication(self) -> Publication:
        """Return the newest publication."""

        def read() -> Publication:
            (facts,) = self.rows(_SQL["publication"])
            published_at = datetime.fromisoformat(facts.pop("published_at"))
            return Publication(published_at=published_at, **facts)

        return self.once("publication", read)

    def _advice(self, connection: duckdb.DuckDBPyConnection, message: str) -> str | None:
        """Return advice for a table or file that SQL can't reach; None for other errors."""
        if found := _NO_FILE.search(message):
            return (
                f"SQL can't read {found[1]!r}: it has the warehouse and registered frames only. "
                'Read the file into a frame, and use db.register("mine", frame)'
            )
        if (found := _NO_TABLE.search(message)) is None:
            return None
        names = [name for (name,) in connection.execute(_SQL["table_names"]).fetchall()]
        near = get_close_matches(found[1].lower(), [*names, *self._frames], 3)
        similar = f" Similar: {', '.join(near)}." if near else ""
        frame = found[1] if found[1].isidentifier() else "frame"
        return (
            f"there is no table {found[1]!r}.{similar} A frame of yours becomes one by "
            f'db.register("{found[1]}", {frame}); db.tables() lists the published tables.'
        )

    def _finished(self, table: "pa.Table", *, own: bool) -> "pa.Table":
        import pyarrow as pa

        if len(set(table.column_names)) < table.num_columns:
            table = table.rename_columns(distinct_names(table.column_names))
        instants = pa.timestamp("us", str(self.tz)) if own and str(self.tz) != "UTC" else None
        for number, field in enumerate(table.schema):
            wanted = None
            if pa.types.is_timestamp(field.type) and field.type.tz is not None:
                wanted = instants if field.name not in _EVENT_DATES else None
            elif getattr(field.type, "extension_name", "") == "arrow.json":
                wanted = pa.string()  # pandas has no such type.
            if wanted is not None:
                table = table.set_column(number, field.name, table.column(number).cast(wanted))
        return table

    def _mark_of_file(self) -> tuple[int, ...] | None:
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return None  # Removed since; the open connection still reads it.
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def _drop(self) -> None:
        if self._connection is not None:
            close_within(self._connection, self._limits.grace_s)
            self._connection, self._mark = None, None
            self._shown_rows.clear()
            self._made.clear()


class _ShownRows(NamedTuple):
    """A parsed statement whose rows can be read by Python, its columns, and those with a zone."""

    statement: duckdb.Statement
    names: list[str]
    is_zoned: list[bool]


def _show_rows(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Any]
) -> _ShownRows:
    found = connection.sql(sql, params=dict(values) or None)
    is_zoned = [str(kind) == _ZONED for kind in found.types]
    # Without a zone, since DuckDB needs pytz for timestamps with one.
    shown = ", ".join(
        f"{quoted(name)}::TIMESTAMP AS {quoted(name)}" if each else quoted(name)
        for name, each in zip(found.columns, is_zoned, strict=True)
    )
    (statement,) = connection.extract_statements(f"SELECT {shown} FROM ({sql}\n)")
    return _ShownRows(statement, found.columns, is_zoned)
