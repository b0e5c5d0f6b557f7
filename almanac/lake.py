"""Reads the Iceberg tables of a warehouse: each read is of one publication, over all tables.

Needs the packages of `crypto-almanac[lake]`. The writer commits one table after another, and then
the table `publications`, whose snapshot names the snapshot of each table. A reader that follows it
never mixes two publications.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from almanac.errors import InvalidArgument, UnknownName, WarehouseError
from almanac.reading.connections import open_memory
from almanac.reading.named_sql import NamedStatements

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import DataScan, Table

_SQL: Final = NamedStatements("almanac")
CATALOG: Final = "almanac"
"""The name under which the catalog's database has the tables."""
NAMESPACE: Final = "almanac"
PUBLICATIONS: Final = "publications"
"""The table that is committed last."""
PUBLICATION: Final = "almanac.publication"
PUBLISHED_AT: Final = "almanac.published-at"
SNAPSHOTS: Final = "almanac.snapshots"
"""Properties of a snapshot: the publication, its time, and a JSON object with the snapshot id of
each table; the last two of `publications` alone."""
FOLDER: Final = "iceberg"
"""The folder of the tables in a home or bucket."""
CATALOG_FILE: Final = "catalog.sqlite"
_FILES: Final = "almanac.bucket_files.BucketFiles"
_SQLITE: Final = "sqlite:///"
_KNOWN_FROM: Final = "known_from"
VERSIONS: Final = "event_versions"


@dataclass(frozen=True, slots=True)
class LakePublication:
    """A publication: its id and time, and the snapshot id of each table."""

    id: str
    published_at: datetime
    snapshots: Mapping[str, int]


class Lake:
    """The Iceberg tables of a warehouse. Make one with `open_lake`."""

    def __init__(self, catalog: "Catalog", namespace: str = NAMESPACE) -> None:
        self.catalog = catalog
        self.namespace = namespace

    def publications(self) -> list[LakePublication]:
        """Return the publications that can still be read, oldest first."""
        found: list[LakePublication] = []
        try:
            table = self.table(PUBLICATIONS)
        except UnknownName:
            return found
        for snapshot in table.snapshots():
            values = snapshot.summary
            if values is not None and values.get(SNAPSHOTS):
                found.append(
                    LakePublication(
                        values[PUBLICATION],
                        datetime.fromisoformat(values[PUBLISHED_AT]),
                        json.loads(values[SNAPSHOTS]),
                    )
                )
        return found

    def publication(self, publication_id: str | None = None) -> LakePublication:
        """Return a publication, by default the newest, with the snapshot id of each table.

        Raises:
            UnknownName: no publication has this id; its snapshots may have expired.
            WarehouseError: nothing was committed yet.
        """
        found = self.publications()
        if not found:
            raise WarehouseError(
                "no publication was committed to the Iceberg tables yet. Nothing was changed; run "
                "`almanac merge` with ALMANAC_ICEBERG=1."
            )
        if publication_id is None:
            return found[-1]
        for publication in reversed(found):
            if publication.id == publication_id:
                return publication
        raise UnknownName(
            f"the Iceberg tables have no publication {publication_id!r}; it may have expired. The "
            f"oldest is {found[0].id} of {found[0].published_at.isoformat()}."
        )

    def table(self, name: str) -> "Table":
        """Return a table of pyiceberg, with its newest snapshot.

        Raises:
            UnknownName: there is no such table.
            WarehouseError: the catalog can't be read.
        """
        from pyiceberg.exceptions import NoSuchTableError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return self.catalog.load_table((self.namespace, name))
        except NoSuchTableError:
            raise UnknownName(
                f"the catalog has no table {self.namespace}.{name}. `almanac merge` with "
                "ALMANAC_ICEBERG=1 makes the tables."
            ) from None
        except SQLAlchemyError as error:
            why = str(getattr(error, "orig", None) or error).partition("\n")[0]
            raise WarehouseError(
                f"the catalog of the Iceberg tables can't be read: {why}. Nothing was changed; "
                "check its address, or run `almanac merge` with ALMANAC_ICEBERG=1, which makes it."
            ) from error

    def scan(
        self,
        table: str,
        *,
        as_of: datetime | None = None,
        publication: LakePublication | None = None,
        row_filter: Any = None,
        columns: tuple[str, ...] = ("*",),
    ) -> "DataScan":
        """Return a scan of pyiceberg over one publication, by default the newest.

        `as_of` leaves out the versions that became known later; only tables with `known_from` take
        it. `row_filter` is a filter of pyiceberg, as an expression or as text.

        Raises:
            InvalidArgument: `as_of` is naive, or the table lacks the column `known_from`.
            UnknownName: there is no such table.
        """
        from pyiceberg.expressions import AlwaysTrue, And, LessThanOrEqual

        pinned = self.publication() if publication is None else publication
        found = self.table(table)
        if table not in pinned.snapshots:
            raise UnknownName(
                f"publication {pinned.id} has no table {table}; it has "
                f"{', '.join(sorted(pinned.snapshots))}."
            )
        condition = AlwaysTrue() if row_filter is None else _parse_filter(row_filter)
        if as_of is not None:
            if as_of.tzinfo is None:
                raise InvalidArgument(
                    f"as_of {as_of.isoformat()} has no zone; expected an aware datetime, such as "
                    "datetime(2026, 3, 1, tzinfo=UTC)."
                )
            if _KNOWN_FROM not in found.schema().column_names:
                raise InvalidArgument(
                    f"{table} has no known_from, so it can't be read as of a past time; read "
                    "event_versions."
                )
            known = LessThanOrEqual(_KNOWN_FROM, as_of.isoformat())
            condition = And(condition, known)
        return found.scan(
            row_filter=condition,
            selected_fields=columns,
            snapshot_id=pinned.snapshots[table],
        )

    def read(
        self,
        table: str,
        *,
        as_of: datetime | None = None,
        publication: LakePublication | None = None,
        row_filter: Any = None,
    ) -> "pa.Table":
        """Return the rows of a table in one publication, by default the newest.

        `event_versions` also has `known_to` and `first_seen_at`, which are not stored: a later
        version ends an earlier one. With `as_of` it has one row per event, the version that was
        valid then, as `events_as_of` of the warehouse; its `known_to` is NULL. A `row_filter` of
        `event_versions` may name `event_id` alone, since these columns need all versions of an
        event: filter the result by other columns.

        Raises:
            InvalidArgument, UnknownName: as `scan`.
        """
        if table == VERSIONS:
            self.refuse_partial_histories(row_filter)
        scan = self.scan(table, as_of=as_of, publication=publication, row_filter=row_filter)
        rows = scan.to_arrow()
        if table != VERSIONS:
            return rows
        with open_memory() as connection:
            connection.register("rows", rows)
            return connection.sql(versions_statement(as_of)).to_arrow_table()

    def refuse_partial_histories(self, row_filter: Any) -> None:
        """Check that a filter of `event_versions` keeps all versions of an event, or none.

        Raises:
            InvalidArgument: it names another column than `event_id`, or can't be read.
        """
        from pyiceberg.expressions.visitors import bind, extract_field_ids

        if row_filter is None:
            return
        schema = self.table(VERSIONS).schema()
        try:
            named = extract_field_ids(bind(schema, _parse_filter(row_filter), case_sensitive=True))
        except ValueError as error:
            raise InvalidArgument(f"row_filter={row_filter!r} can't be read: {error}") from error
        others = named - {schema.find_field("event_id").field_id}
        if others:
            names = ", ".join(sorted(str(schema.find_column_name(field)) for field in others))
            raise InvalidArgument(
                f"row_filter names {names}; expected event_id alone. The filter would run before "
                "the version of each event is chosen, and an older version would look valid. "
                "Filter the result instead, or use scan() for the stored rows."
            )


def _parse_filter(row_filter: Any) -> Any:
    if not isinstance(row_filter, str):
        return row_filter
    from pyiceberg.expressions import parser

    return parser.parse(row_filter)


def versions_statement(as_of: datetime | None) -> str:
    """Return the statement that derives columns of `event_versions` from its rows `FROM rows`."""
    return _SQL["read_versions" if as_of is None else "read_valid_versions"]


def open_lake(catalog: str | Path, *, namespace: str = NAMESPACE, **properties: str) -> Lake:
    """Open the Iceberg tables of a warehouse for reading.

    `catalog` is the folder of a home with a SQLite catalog, the address of a database
    (`postgresql://…`, `sqlite:///…`), or the name of a catalog in `.pyiceberg.yaml`. A bucket is
    opened as the environment says (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `AWS_REGION`), unless
    `properties` has options of pyiceberg, such as `{"s3.endpoint": "https://…"}`.

        lake = open_lake("postgresql://reader@db/almanac")
        lake.read("event_versions", as_of=datetime(2026, 3, 1, tzinfo=UTC))

    Raises:
        WarehouseError: the packages of `crypto-almanac[lake]` or the catalog file are missing.
    """
    place = str(catalog)
    file = find_catalog_file(place)
    if isinstance(catalog, str) and "://" not in place and not Path(place).exists():
        require_packages()
        from pyiceberg.catalog import load_catalog

        return Lake(load_catalog(place, **properties), namespace)
    if "://" not in place:
        file = Path(place).resolve()
        file = file if file.is_file() else file / FOLDER / CATALOG_FILE
        place = f"{_SQLITE}{file}"
    if file is not None and not file.is_file():
        raise WarehouseError(
            f"there is no Iceberg catalog at {file}. Nothing was changed; `almanac merge` with "
            "ALMANAC_ICEBERG=1 makes it, or give the address of the database."
        )
    return Lake(open_catalog(place, {"init_catalog_tables": "false", **properties}), namespace)


def find_catalog_file(address: str) -> Path | None:
    """Return the file of a catalog in SQLite; None if the address is of another database."""
    return Path(address.removeprefix(_SQLITE)) if address.startswith(_SQLITE) else None


def open_catalog(address: str, properties: Mapping[str, str] = MappingProxyType({})) -> "Catalog":
    """Open a catalog in PostgreSQL or in a SQLite file.

    Raises:
        WarehouseError: the packages of `crypto-almanac[lake]` are missing.
        InvalidArgument: the address can't be read; it is not shown, since it has a password.
    """
    require_packages()
    from pyiceberg.catalog.sql import SqlCatalog

    if not address.startswith(_SQLITE):
        scheme, _, rest = address.partition("://")
        if rest.count("@") > 1 or "#" in rest:
            raise InvalidArgument(
                "the address of the catalog can't be read; expected "
                "postgresql://USER:PASSWORD@HOST/NAME, with '@', '/', ':', '#' and '%' in the "
                "password written as %40, %2F, %3A, %23 and %25. Nothing was opened."
            )
        if scheme in ("postgresql", "postgres"):
            address = f"postgresql+psycopg://{rest}"
        properties = {"pool_pre_ping": "true", **properties}
    return SqlCatalog(CATALOG, **{"uri": address, "py-io-impl": _FILES, **properties})


def require_packages() -> None:
    """Check that the packages for Iceberg are installed.

    Raises:
        WarehouseError: they are not.
    """
    try:
        import psycopg
        import pyiceberg
        import sqlalchemy
    except ImportError as error:
        raise WarehouseError(
            f"the package {error.name} is not installed, and the Iceberg tables need it. Nothing "
            "was changed; run `pip install crypto-almanac[lake]`."
        ) from error
    del psycopg, pyiceberg, sqlalchemy
