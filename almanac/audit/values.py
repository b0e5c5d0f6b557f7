"""The caller's values as instants and as keys, which are equal for equal values.

Belongs here: choosing the statement by the type of a column. Does not: what is compared with what
(judge).
"""

from typing import TYPE_CHECKING, Any, Final

from almanac.audit.fields import FIELDS, JudgedField
from almanac.audit.lookalikes import is_set
from almanac.errors import InvalidArgument
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

if TYPE_CHECKING:
    import pyarrow as pa

SQL: Final = NamedStatements("almanac.audit")
_NEAR: Final = {
    "instant": "near_instant",
    "number": "near_number",
    "text": "near_text",
    "word": "near_text",
    "list": "near_list",
    "entry": "near_list",
}


def read_instants(reader: Reader, given: "pa.Table", name: str) -> "pa.Table":
    """Return `given` with its column `value` read: instant, is_empty, is_naive, is_day, midnight.

    Raises:
        InvalidArgument: the column holds numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = given.schema.field("value").type
    frames = {"given": given}
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        written = pc.local_timestamp(given["value"])
        frames["given"] = given.append_column("written", written)
        return reader.query(SQL["read_aware"], frames=frames)
    tz = {"tz": str(reader.tz)}
    if pa.types.is_string(kind):
        frames["given"] = reader.query(SQL["read_texts"], frames=frames)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        is_day = {"is_day": pa.types.is_date(kind)}
        frames["given"] = reader.query(SQL["read_naive"], is_day, frames=frames)
    else:
        advice = f"If they are seconds: pandas.to_datetime(frame[{name!r}], unit='s', utc=True)"
        if "period" in str(kind):
            advice = f"Convert periods: frame[{name!r}].dt.to_timestamp()"
        raise InvalidArgument(
            f"the column {name!r} holds {kind}, and instants are expected. {advice}"
        )
    return reader.query(SQL["placed_in_zone"], tz, frames=frames)


def used_keys(
    reader: Reader, field: JudgedField, given: "pa.Table", name: str
) -> tuple["pa.Table", int]:
    """Return `given` with its column `value` as key and is_read; and how many name no zone.

    Raises:
        InvalidArgument: the column has a type that can't be one of this field.
    """
    import pyarrow.compute as pc

    if field.kind != "instant":
        return _keys(reader, field, given, are_sets=is_set(name)), 0
    read = read_instants(reader, given, name)
    # A date alone is a calendar day, of no zone.
    naive = pc.sum(pc.and_not(read["is_naive"], read["is_day"])).as_py() or 0
    return reader.query(SQL["keys_of_instant"], frames={"given": read}), naive


def known_keys(reader: Reader, field: JudgedField, given: "pa.Table") -> "pa.Table":
    """Return the rows of `given` with a key for each value that its column `value` equals."""
    if field.kind == "instant":
        return reader.query(SQL["known_instant_keys"], frames={"given": given})
    if field.kind == "coin":
        return reader.query(SQL["known_coin_keys"], frames={"given": given})
    if field.kind in ("list", "entry"):
        sets = _keys(reader, FIELDS[field.source], given, are_sets=True)
        return reader.query(SQL["known_list_keys"], frames={"given": given, "sets": sets})
    return _keys(reader, field, given)


def near_values(
    reader: Reader, field: JudgedField, given: "pa.Table", spans: "pa.Table", name: str
) -> "pa.Table | None":
    """Return the versions that say nearly the value used: use, place, known_from, is_exact.

    None if values of this kind are near nothing.

    Raises:
        InvalidArgument: the column has a type that can't be one of this field.
    """
    statement = _NEAR.get(field.kind)
    if statement is None:
        return None
    if field.kind == "instant":
        given = read_instants(reader, given, name)
    elif field.kind != "number":
        given = _with_texts(given)
    return reader.query(SQL[statement], frames={"uses": given, "spans": spans})


def as_text(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return values as the findings show them; instants in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        zone = column.type.tz and "UTC"
        seconds = column.cast(pa.timestamp("s", column.type.tz), safe=False)
        # Each distinct date once: strftime takes a microsecond.
        coded = seconds.cast(pa.timestamp("s", zone)).combine_chunks().dictionary_encode()
        texts = pc.strftime(coded.dictionary, "%Y-%m-%dT%H:%M:%S" + ("Z" if zone else ""))
        return pa.chunked_array([texts.take(coded.indices)])
    return joined_lists(column) if pa.types.is_list(column.type) else column.cast(pa.string())


def _keys(
    reader: Reader, field: JudgedField, given: "pa.Table", *, are_sets: bool = False
) -> "pa.Table":
    import pyarrow as pa

    are_sets = are_sets or pa.types.is_list(given.schema.field("value").type)
    if field.kind != "number":
        given = _with_texts(given)
    values = {}
    if field.kind == "list":
        values["form"] = "sets"
        if not are_sets:
            (row,) = reader.query(SQL["has_lists"], frames={"given": given}).to_pylist()
            values["form"] = "texts" if row["has_lists"] else "entries"
    return reader.query(SQL[f"keys_of_{field.kind}"], values, frames={"given": given})


def _with_texts(given: "pa.Table") -> "pa.Table":
    """Return a table with its column `value` as texts; lists are joined with commas."""
    import pyarrow as pa

    place = given.schema.get_field_index("value")
    column = given.column(place)
    if pa.types.is_list(column.type):
        column = joined_lists(column)
    return given.set_column(place, "value", column.cast(pa.string()))


def joined_lists(column: Any) -> "pa.ChunkedArray":
    """Return lists of texts as texts with commas; NULL stays NULL.

    Raises:
        pa.ArrowInvalid: the entries are no texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join(column.cast(pa.list_(pa.string())), ", ")
