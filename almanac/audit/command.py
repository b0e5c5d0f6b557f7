"""`almanac audit`: the command of the package and of the application.

Belongs here: what the command does with its options, once for both. Does not: their parsing
(almanac/command_line.py, pipeline/cli).
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from almanac.audit.audit import audit
from almanac.audit.report import as_text, headline
from almanac.audit.result import unjudged_limit
from almanac.errors import InvalidArgument
from almanac.forms.output import fitted
from almanac.forms.plain_text import escaped_in_json, plain
from almanac.instants import zone
from almanac.reader import Reader, find_file

EXIT_LEAK: Final = 1
_LINE_S: Final = 10


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What the command was given.

    `fields` are texts such as `my_column=impact`, `require` names of fields, `universe` texts such
    as `within=7d`. `max_unjudged` is a number of rows, or a share such as `5%` or `0.05`.
    """

    signals: Path
    decided_at: str | None = None
    fields: Sequence[str] = ()
    basis: str = "observed"
    tz: str = "UTC"
    html: Path | None = None
    as_json: bool = False
    is_strict: bool = False
    max_unjudged: str | None = None
    require: Sequence[str] = ()
    universe: Sequence[str] = ()
    limit: int | None = None


def run_audit(warehouse: Path, given: AuditOptions, write: Callable[[str], object]) -> int:
    """Audit a file, write the answer, return the exit code.

    It is 1 if the audit is not clean, and is strict or has a limit or a required field.

    Raises:
        AlmanacError: the file or the warehouse can't be read, or an option is wrong.
    """
    if given.signals.suffix.lower() == ".html":
        raise InvalidArgument(f"{given.signals} is a page; the rows to audit are CSV or Parquet")
    if given.html is not None and not given.html.parent.is_dir():
        raise InvalidArgument(f"--html {given.html}: there is no folder {given.html.parent}")
    max_unjudged = None if given.max_unjudged is None else _unjudged(given.max_unjudged)
    require = [name.strip() for names in given.require for name in names.split(",") if name.strip()]
    universe = dict(map(_filter, given.universe)) if given.universe else None
    reader = Reader(find_file(warehouse), tz=zone(given.tz))
    try:
        answer = audit(
            reader,
            given.signals,
            decided_at=given.decided_at,
            fields=dict(map(_column, given.fields)),
            basis=given.basis,
            universe=universe,
            progress=_shown_on_terminal if sys.stderr.isatty() else _SlowLines().show,
        )
    finally:
        reader.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    if given.html is not None:
        answer.to_html(given.html)
    if given.as_json:
        limit = 1_000 if given.limit is None else given.limit
        write(escaped_in_json(answer.to_json(findings_max=limit)) + "\n")
    else:
        limit = 10 if given.limit is None else given.limit
        write(plain(as_text(answer, findings_max=limit)) + "\n")
        if given.html is not None:
            write(plain(f"The page is {given.html}\n"))
    failures = answer.failures(max_unjudged, require)
    is_strict = given.is_strict or max_unjudged is not None or require
    if not is_strict or not failures:
        return 0
    if given.as_json:
        sys.stderr.write(plain(f"almanac: {headline(answer)}\n"))
    sys.stderr.write(plain("".join(f"almanac: {failure}.\n" for failure in failures)))
    return EXIT_LEAK


def _unjudged(given: str) -> float:
    """Return a number of rows, or a share of them as a fraction.

    Raises:
        InvalidArgument: it is neither.
    """
    text = given.strip()
    try:
        limit = (
            float(text.removesuffix("%")) / 100
            if text.endswith("%")
            else float(text)
            if "." in text
            else int(text)
        )
        unjudged_limit(limit, 0)
    except (ValueError, InvalidArgument):
        raise InvalidArgument(
            f"--max-unjudged {given}: expected a number of rows, such as 10, or a share, such as "
            "5% or 0.05"
        ) from None
    return limit


def _filter(given: str) -> tuple[str, Any]:
    """Return a filter of the universe, with lists as lists."""
    name, sign, value = given.partition("=")
    name = name.strip()
    if not sign or not value.strip():
        raise InvalidArgument(f"--universe {given}: expected NAME=VALUE, such as within=7d")
    if name in ("coins", "categories", "status"):
        listed = [part.strip() for part in value.split(",") if part.strip()]
        return name, "all" if name == "status" and listed == ["all"] else listed
    return name, value.strip()


def _column(given: str) -> tuple[str, str | None]:
    column, sign, field = given.rpartition("=")
    if not sign or not column:
        raise InvalidArgument(
            f"--field {given}: expected COLUMN=FIELD, such as score=impact; COLUMN=- leaves the "
            "column out"
        )
    return column, None if field == "-" else field


class _SlowLines:
    """Lines for a log: none in the first seconds, then one in that time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last = monotonic()

    def show(self, step: str) -> None:
        if self._monotonic() - self._last >= _LINE_S:
            self._last = self._monotonic()
            sys.stderr.write(f"almanac: {step}\n")
            sys.stderr.flush()


def _shown_on_terminal(step: str) -> None:
    sys.stderr.write(fitted(f"\r\x1b[K{step} …", sys.stderr.encoding))
    sys.stderr.flush()
