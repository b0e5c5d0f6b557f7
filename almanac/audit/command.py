"""The command `almanac audit`: the look-ahead audit of a file."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from almanac.commands import decode_argument, locate_warehouse
from almanac.console import HomeOption, JsonOption, local_file, show_steps
from almanac.core.errors import InvalidArgument
from almanac.core.text import escape_json, plain
from almanac.core.timestamps import TimeUnit, read_zone
from almanac.events import Basis
from almanac.reader import Reader, find_file
from almanac.reading.row_files import refuse_part_of_home


def audit(
    signals: Annotated[
        Path,
        typer.Argument(help="A Parquet or CSV file, a folder or a pattern.", callback=local_file),
    ],
    decided_at: Annotated[
        str | None,
        typer.Option(
            help="The column of the decision; by default decided_at or ts.", metavar="COLUMN"
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="A column with another name, such as score=impact; COLUMN=- leaves it out.",
            metavar="COLUMN=FIELD",
        ),
    ] = None,
    basis: Annotated[
        Basis, typer.Option(help="Use pulled data only, or also the service's claims.")
    ] = "observed",
    tz: Annotated[str, typer.Option(help="The time zone of times without one.")] = "UTC",
    unit: Annotated[
        TimeUnit | None, typer.Option(help="The unit of times that are numbers since 1970.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write an HTML report to this file.", callback=local_file),
    ] = None,
    as_json: JsonOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if the audit is not clean.")
    ] = False,
    max_unjudged: Annotated[
        str | None,
        typer.Option(
            help="Exit with 1 if more rows than this can't be judged: a number, or a share such "
            "as 5%.",
            metavar="ROWS|SHARE",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if one of these fields was not judged, such as date,impact.",
            metavar="FIELDS",
        ),
    ] = None,
    universe: Annotated[
        list[str] | None,
        typer.Option(
            help="A filter with which the rows were selected, such as within=7d or min_impact=7.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="Print at most this many findings: by default 10, and 1000 as JSON."
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Find back-test rows that used future information.

    A row has event_id (or coin and date), decided_at, and the values used, in columns named as in
    events: date, impact, status and others.
    """
    from almanac.audit.audit import audit as find_look_ahead
    from almanac.audit.report import format_audit, write_headline

    if signals.suffix.lower() == ".html":
        raise InvalidArgument(f"{signals} is an HTML file; expected a CSV or Parquet file")
    warehouse = locate_warehouse(home)
    if html is not None:
        if not html.parent.is_dir():
            raise InvalidArgument(f"--html {html}: there is no folder {html.parent}")
        refuse_part_of_home(html, warehouse)
    most_unjudged = None if max_unjudged is None else _read_max_unjudged(max_unjudged)
    required = [name.strip() for names in require or () for name in names.split(",")]
    required = [name for name in required if name]
    reader = Reader(find_file(warehouse), tz=read_zone(tz))
    with closing(reader), show_steps("Judging the rows"):
        answer = find_look_ahead(
            reader,
            signals,
            decided_at=decided_at and decode_argument(decided_at, "--decided-at"),
            fields=dict(map(_read_column, field or ())),
            basis=basis,
            universe=dict(map(_read_filter, universe or ())) or None,
            unit=unit,
        )
    if html is not None:
        answer.to_html(html)
    if as_json:
        text = escape_json(answer.to_json(1_000 if limit is None else limit))
    else:
        text = plain(format_audit(answer, findings_max=10 if limit is None else limit))
    sys.stdout.write(text + "\n")
    if html is not None and not as_json:
        sys.stdout.write(plain(f"The page is {html}\n"))
    failures = answer.failures(most_unjudged, required)
    if not failures or not (strict or most_unjudged is not None or required):
        return
    if as_json:
        sys.stderr.write(plain(f"almanac: {write_headline(answer)}\n"))
    sys.stderr.write(plain("".join(f"almanac: {failure}.\n" for failure in failures)))
    raise typer.Exit(1)


def _read_max_unjudged(given: str) -> float:
    """Return a number of rows, or a share of them as a fraction."""
    from almanac.audit.report import read_unjudged_limit

    text = given.strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else None
        limit = share if share is not None else float(text) if "." in text else int(text)
        read_unjudged_limit(limit, 0)
    except (ValueError, InvalidArgument):
        raise InvalidArgument(
            f"--max-unjudged {given}: expected a number of rows, such as 10, or a share, such as "
            "5% or 0.05"
        ) from None
    return limit


def _read_filter(given: str) -> tuple[str, Any]:
    """Return a filter of the universe, with lists as lists."""
    name, sign, value = decode_argument(given, "--universe").partition("=")
    name = name.strip()
    if not sign or not value.strip():
        raise InvalidArgument(f"--universe {given}: expected NAME=VALUE, such as within=7d")
    if name in ("coins", "categories", "status"):
        names = [part.strip() for part in value.split(",") if part.strip()]
        return name, "all" if name == "status" and names == ["all"] else names
    return name, value.strip()


def _read_column(given: str) -> tuple[str, str | None]:
    column, sign, field = decode_argument(given, "--field").rpartition("=")
    if not sign or not column:
        raise InvalidArgument(
            f"--field {given}: expected COLUMN=FIELD, such as score=impact; COLUMN=- leaves the "
            "column out"
        )
    return column, None if field == "-" else field
