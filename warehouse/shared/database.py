"""The PostgreSQL database of a home: its address, connections, tables, and errors.

No repr and no error of this module shows the password. psycopg is imported when a connection is
opened, since most homes have no such database.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from warehouse.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    SharedDatabaseError,
    StaleWriter,
)

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection

    from almanac.reading.named_sql import NamedStatements

CATALOG_TABLES: Final = ("iceberg_tables", "iceberg_namespace_properties")
"""The tables of the Iceberg catalog, which pyiceberg creates."""
STALE: Final = "AL001"
"""The SQLSTATE with which the fence refuses a commit."""
_FORMAT: Final = 1
_FORMAT_TEXT: Final = "Almanac: writer lease and files of one home, format "
_CREATIONS: Final = ("create_lease", "create_files")
"""The statements that create the tables, in order."""
CONNECT_S: Final = 10
"""The usual wait for a connection, in seconds."""
_HOST: Final = re.compile(r"[\w.:%,\[\]/-]*", re.ASCII)
_PORT: Final = re.compile(r"(\d+(,\d+)*)?", re.ASCII)
_DEAD_NETWORK: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""A connection whose other end has vanished fails after about 15 s."""


class SharedDatabase:
    """The database at an address `postgresql://USER:PASSWORD@HOST/NAME`. Opens nothing yet."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __repr__(self) -> str:
        return "SharedDatabase()"

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        """The connection parameters of the address.

        Raises:
            DatabaseRefused: it can't be read, or psycopg is not installed.
        """
        try:
            from psycopg import Error
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise DatabaseRefused(
                "ALMANAC_POSTGRES needs the package psycopg. Nothing was changed; run `pip install "
                "'crypto-almanac[lake]'`."
            ) from None
        found: dict[str, Any] = {}
        with suppress(Error):  # Its text may contain a part of the password.
            found = conninfo_to_dict(self._address)
        host, port = str(found.get("host", "")), str(found.get("port", ""))
        odd = "@" in str(found.get("dbname", "")) or not _HOST.fullmatch(host)
        if not found or odd or not _PORT.fullmatch(port):
            raise DatabaseRefused(
                "ALMANAC_POSTGRES can't be read as an address; expected "
                "postgresql://USER:PASSWORD@HOST/NAME, with '@', '/', ':' and '%' in the password "
                "written as %40, %2F, %3A and %25. Nothing was changed."
            )
        return {"application_name": "almanac", **found}

    @property
    def place(self) -> str:
        """Host, port and name of the database, for messages."""
        found = self._parameters
        host = found.get("host") or found.get("hostaddr") or "the local server"
        port = f":{found['port']}" if found.get("port") else ""
        name = found.get("dbname") or found.get("user") or "the default database"
        return f"{host}{port}/{name}"

    def connect(self, options: str = "", *, timeout_s: int = CONNECT_S) -> "Connection":
        """Open a connection in autocommit mode, on UTC. `options` are added to the session's.

        Raises:
            DatabaseUnavailable: it does not answer.
            DatabaseRefused: the address is wrong, or it does not admit this user.
        """
        parameters = {"connect_timeout": timeout_s, **_DEAD_NETWORK, **self._parameters}
        import psycopg

        parameters["options"] = self._options(f"-c TimeZone=UTC {options}")
        with self.translating_errors():
            return psycopg.connect(**parameters, autocommit=True)

    def catalog_uri(self, options: str = "") -> str:
        """Return the address for the Iceberg catalog, **with the password**.

        `options` are added to the session's.
        """
        from sqlalchemy import URL

        rest = dict(self._parameters)
        user, password = rest.pop("user", None), rest.pop("password", None)
        name = rest.pop("dbname", None)
        rest["options"] = self._options(options)
        query = {key: str(value) for key, value in rest.items() if str(value)}
        url = URL.create("postgresql", username=user, password=password, database=name, query=query)
        return url.render_as_string(hide_password=False)

    def _options(self, more: str) -> str:
        return f"{self._parameters.get('options', '')} {more}".strip()

    def prepare(self, connection: "Connection") -> None:
        """Create the tables, unless they exist.

        Raises:
            DatabaseRefused: a newer Almanac created them, or this user may not.
        """
        with self.translating_errors():
            ((text,),) = connection.execute(statement("read_format")).fetchall()
            if text is not None and (number := _format_number(text)) != _FORMAT:
                raise DatabaseRefused(
                    f"the schema `almanac` of the database {self.place} has format {number}; this "
                    f"version of Almanac writes format {_FORMAT}. Nothing was changed; upgrade "
                    "Almanac, or use another database."
                )
            if text is not None:
                return
            with connection.transaction():
                for name in _CREATIONS:
                    connection.execute(statement(name))
                connection.execute(statement("note_format", format=f"'{_FORMAT_TEXT}{_FORMAT}'"))

    def fence(self, connection: "Connection", tables: Sequence[str] = CATALOG_TABLES) -> None:
        """Let only the writer with the lease change these tables, if they exist."""
        with self.translating_errors():
            for table in list_unfenced(connection, tables):
                connection.execute(statement("fence_table", table=table))

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Raise errors of psycopg and SQLAlchemy as errors of `warehouse.errors`.

        Raises:
            StaleWriter: the fence refused a commit.
            DatabaseUnavailable: the database does not answer.
            DatabaseRefused: it answers and refuses.
        """
        import psycopg

        try:
            yield
        except Exception as error:
            found = _find_database_error(error)
            if found is None:
                raise
            message = self._describe(found)
            if found.sqlstate == STALE:
                raise StaleWriter(
                    f"{message}. The commit was refused and changed nothing; earlier commits "
                    "stay. Run the command again: it continues from there."
                ) from None
            refusal: type[SharedDatabaseError] = DatabaseRefused
            if isinstance(found, psycopg.OperationalError):
                refusal = DatabaseUnavailable
            raise refusal(
                f"the database {self.place} (ALMANAC_POSTGRES) can't be used: {message}. Nothing "
                "was changed there. Run the command again when it can be used; `almanac doctor` "
                "checks it."
            ) from None

    def _describe(self, error: "psycopg.Error") -> str:
        """Return the first line of an error, without the password."""
        text = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
        password = str(self._parameters.get("password") or "")
        return (text.replace(password, "***") if password else text).rstrip(".")


def statement(name: str, **words: str) -> bytes:
    """Return a statement of this room as psycopg takes it, each `{word}` replaced."""
    text = _statements()[name]
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text.encode()


@cache
def _statements() -> "NamedStatements":
    # Imported here, since it imports DuckDB.
    from almanac.reading.named_sql import NamedStatements

    return NamedStatements(__package__)


def list_unfenced(connection: "Connection", tables: Sequence[str] = CATALOG_TABLES) -> list[str]:
    """Return those tables that exist and that any session may change."""
    rows = connection.execute(statement("find_unfenced"), {"tables": list(tables)}).fetchall()
    return [str(name) for (name,) in rows]


def _format_number(text: str) -> int:
    """Return the format in a schema's comment, 0 if it is not Almanac's."""
    number = text.removeprefix(_FORMAT_TEXT)
    return int(number) if number.isdecimal() else 0


def _find_database_error(error: Exception) -> "psycopg.Error | None":
    """Return the error of psycopg, also from SQLAlchemy's; a refusal also from its causes."""
    import psycopg

    cause: BaseException | None = error
    while cause is not None:
        found = getattr(cause, "orig", cause)
        if isinstance(found, psycopg.Error) and (cause is error or found.sqlstate == STALE):
            return found
        cause = cause.__cause__ or cause.__context__
    return None
