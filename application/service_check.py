"""The checks of `almanac doctor` that send requests: of the watchlist, and of each endpoint.

With `--service`, each endpoint gets a request, and its response is decoded strictly. A difference
is a response that the records of `catalog/contract` do not describe: another status, or a field
that is unknown, missing or of another type. Pulls accept most of them; the rest need a setting,
which is named.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import quote

import msgspec

from almanac.core.statements import Statements
from almanac.reading.attached_file import connected
from catalog.contract import constants
from catalog.contract.bodies import fold
from catalog.contract.plans import Plan
from catalog.contract.records import (
    EVENT_FIELDS,
    Cancellation,
    Category,
    Coin,
    Event,
    PaginationMeta,
    Record,
    Usage,
    instant_text,
)
from resources.http.client import CatalogClient, InspectedResponse
from warehouse.codecs import UnreadableBody, decode_json

_RATE_HEADERS: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_SIGNATURE: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*-Signature)\b")
_MOST_BYTES: Final = 4 << 20  # More of an export is not needed.
_SHOWN: Final = 8
_SQL: Final = Statements(__package__)
LOOK_UPS_MAX: Final = 20
"""More coins are not looked up: each look-up counts against the quota."""
KNOWN: Final = frozenset({"listed", "found"})
"""The statuses of coins that need no attention."""
_MEANINGS: Final = {
    "unknown": "no coin has the slug {slugs}: correct ALMANAC_COINS",
    "not_covered": "the plan {plan} does not cover {slugs}: it shows none of their events",
    "untracked": "{slugs} are not tracked: no new events are added for them",
    "not_asked": "{slugs} are not in a published list and were not looked up",
}


@dataclass(slots=True)
class EndpointCheck:
    """The differences of an endpoint, and the settings that fit them, by name."""

    call: str
    is_usable: bool = True
    """Whether the response has what was asked for."""
    differences: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        found = list(dict.fromkeys(self.differences))
        more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        needed = [f"set {name}={value}" for name, value in self.settings.items()]
        return "; ".join([*found[:_SHOWN], *more, *needed]) or "as expected"


def check_endpoints(client: CatalogClient, plan: Plan) -> Iterator[EndpointCheck]:
    """Yield a check for each endpoint. Sends at most 11 requests.

    Raises:
        CatalogError: a request had no response, or the rate or quota is used up.
    """
    check, answer = _ask(client, constants.USAGE_PATH)
    if check.is_usable:
        check.differences += _compare(_json(answer), Usage, plan)
    for name in _RATE_HEADERS if plan.monthly_quota is not None else ():
        given = answer.headers.get(name.lower())
        if given is None or (name.endswith("Reset") and "T" not in given):
            check.differences.append(f"header {name} is {given}")
    yield check

    check, document = _ask(client, constants.OPENAPI_PATH)
    signatures = set(_SIGNATURE.findall(document.body.decode("utf-8", "replace")))
    if check.is_usable and signatures and constants.SIGNATURE_HEADER not in signatures:
        check.differences.append(f"webhooks are signed in {min(signatures)}")
        check.settings["ALMANAC_SIGNATURE_HEADER"] = min(signatures)
    yield check

    size = constants.EVENTS_LIMIT_MAX
    yield _check_list(client, plan, constants.CATEGORIES_PATH, Category, None)[0]
    yield _check_list(client, plan, constants.CANCELLATIONS_PATH, Cancellation, size)[0]
    check, events = _check_list(client, plan, constants.EVENTS_PATH, Event, size)
    yield check
    size = constants.COINS_LIMIT_MAX
    check, coins = _check_list(client, plan, constants.COINS_PATH, Coin, size)
    yield check
    event_paths = [f"{constants.EVENTS_PATH}/{row.get('id')}" for row in events[:1]]
    coin_paths = [f"{constants.COINS_PATH}/{row.get('slug')}" for row in coins[:1]]
    for path in event_paths + coin_paths:
        check, answer = _ask(client, quote(path))
        if check.is_usable:
            record = Event if path in event_paths else Coin
            check.differences += _compare(_json(answer), record, plan)
        yield check

    day = min((str(row.get("date"))[:10] for row in events), default=constants.CATALOG_STARTS)
    yield _check_export(client, plan, {"from": day, "to": day}, _json(document))


def _ask(
    client: CatalogClient, path: str, params: Mapping[str, str] | None = None
) -> tuple[EndpointCheck, InspectedResponse]:
    given = params or {}
    answer = client.inspect(path, given, most_bytes=_MOST_BYTES, for_export="from" in given)
    check = EndpointCheck(f"GET {path}", answer.status == 200 and not answer.fault)
    if not check.is_usable:
        check.differences.append(answer.fault or f"status {answer.status}")
    return check, answer


def _json(answer: InspectedResponse) -> Any:
    """Return the value of a body, or its text if it is not JSON."""
    try:
        return decode_json(answer.body)[0]
    except UnreadableBody:
        return answer.body.decode("utf-8", "replace")


def _check_list(
    client: CatalogClient, plan: Plan, path: str, record: type[Record], limit: int | None
) -> tuple[EndpointCheck, list[dict[str, Any]]]:
    """Return the check of a list, and its rows. If the page size is refused, the request is
    repeated without it."""
    check, answer = _ask(client, path, {} if limit is None else {"limit": str(limit)})
    is_refused = answer.status in (400, 422) and path == constants.EVENTS_PATH
    if is_refused:
        check, answer = _ask(client, path)
        check.differences.append(f"limit={limit} is refused")
    if not check.is_usable:
        return check, []
    body = _json(answer)
    named = body if isinstance(body, dict) else {"data": body}
    meta, rows = named.get("meta"), named.get("data")
    if named.keys() != {"data", "meta"} or not isinstance(rows, list):
        kind = f"an object of {', '.join(body)}" if body is named else type(body).__name__
        check.differences.append(f"expected an object of data and meta, got {kind}")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    meta = meta if isinstance(meta, dict) else {}
    if meta:
        check.differences += _compare(meta, PaginationMeta, plan, "meta.")
    for row in rows:
        check.differences += _compare(row, record, plan)
    if (applied := meta.get("limit", len(rows) if is_refused else limit)) and is_refused:
        check.settings["ALMANAC_PAGE_SIZE"] = str(applied)
    elif limit is not None and applied != limit:
        check.differences.append(f"limit={applied} was applied instead of limit={limit}")
    return check, rows


def _compare(
    value: Any, record: type[Record], plan: Plan, within: str = "", *, strict: bool = True
) -> Iterator[str]:
    """Yield how a value differs from a record. The texts of a CSV are not `strict`."""
    if not isinstance(value, dict):
        yield f"{within.rstrip('.') or 'the body'} is of the type {type(value).__name__}"
        return
    fields = {each.encode_name: each for each in msgspec.structs.fields(record)}
    yield from (f"unknown field {within}{name}" for name in value if name not in fields)
    for name, each in fields.items():
        kinds = (each.type, *get_args(each.type))
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Record)]
        if name not in value:
            # Free shows no categories, and leaves out the name.
            if name != "categories" or plan.shows(name):
                yield f"missing field {within}{name}"
        elif inner:
            for part in value[name] if isinstance(value[name], list) else [value[name]]:
                yield from _compare(part, inner[0], plan, f"{within}{name}.")
        else:
            try:
                read = msgspec.convert(value[name], each.type, strict=strict)
            except msgspec.ValidationError as error:
                yield f"{within}{name}: {error}"
                continue
            if isinstance(read, datetime) and instant_text(read) != value[name]:
                yield f"{within}{name} is not of the form YYYY-MM-DDThh:mm:ssZ"


def _check_export(
    client: CatalogClient, plan: Plan, params: Mapping[str, str], document: Any
) -> EndpointCheck:
    """Check one day of the export, also at the path that the OpenAPI document names."""
    check, answer = _ask(client, client.export_path, params)
    paths = document.get("paths", {}) if isinstance(document, dict) else {}
    others = [path for path in paths if "export" in path and path != client.export_path]
    if answer.status == 404 and others:
        check, answer = _ask(client, others[0], params)
        check.differences.append(f"it is not at {client.export_path}")
        check.settings = {"ALMANAC_EXPORT_PATH": others[0]} if check.is_usable else {}
    if answer.status == 403 and not plan.export:
        return EndpointCheck(check.call, True, [f"the plan {plan.name} has no export"])
    if not check.is_usable:
        return check
    for name, expected in {"Content-Type": "text/csv", "ETag": "", "Last-Modified": ""}.items():
        given = answer.headers.get(name.lower())
        if given is None or not given.startswith(expected):
            check.differences.append(f"header {name} is {given}")
    text = answer.body.decode("utf-8-sig", "replace")
    lines = list(csv.reader(io.StringIO(text, newline="")))[: -1 if answer.is_cut else None]
    cells: list[str] = []
    header = [client.export_columns.get(name, name) for name in (lines[0] if lines else ())]
    unknown = {fold(name): name for name in header if name not in EVENT_FIELDS}
    missing = {fold(name): name for name in EVENT_FIELDS if header and name not in header}
    pairs = {name: get_close_matches(name, missing, 1) for name in unknown}
    if found := {unknown[name]: missing[near[0]] for name, near in pairs.items() if near}:
        mapping = client.export_columns | found
        text = ",".join(f"{name}={field}" for name, field in mapping.items())
        check.settings["ALMANAC_EXPORT_COLUMNS"] = f"'{text}'"
    if unknown or missing:
        fields = [f"{name} ({'extra' if name in unknown.values() else name})" for name in header]
        check.differences.append(f"columns and their fields: {', '.join(fields)}")
    common = [name for name in header if name in EVENT_FIELDS]
    if common != sorted(common, key=EVENT_FIELDS.index):
        check.differences.append("the columns are in another order")
    if len(lines) < 2:
        check.differences.append(f"no row on {params['from']}")
    for line in lines[1:]:
        row: dict[str, Any] = {name: cell or None for name, cell in zip(header, line, strict=False)}
        for name in row.keys() & {"categories", "coins"}:
            cells.append(row[name] or "")
            row[name] = []
        check.differences += _compare(row, Event, plan, strict=False)
    counts = {mark: sum(mark in cell for cell in cells) for mark in (";", "|", ",")}
    mark = max(counts, key=lambda each: counts[each])
    if counts[mark] and mark != ";":
        check.differences.append(f"lists are joined with {mark}")
        check.settings["ALMANAC_LIST_SEPARATOR"] = f"'{mark}'"
    return check


def look_up_coins(
    slugs: Sequence[str], client: CatalogClient, warehouse: Path
) -> dict[str, list[str]]:
    """Return the coins of the watchlist by status: a key of `_MEANINGS`, or of `KNOWN`.

    Raises:
        CatalogError: a look-up failed.
    """
    listed: set[str] = set()
    if warehouse.exists():
        with connected(warehouse) as connection:
            rows = connection.execute(_SQL["list_tracked_coins"], {"slugs": list(slugs)})
            listed = {slug for (slug,) in rows.fetchall()}
    found: dict[str, list[str]] = {}
    others = [slug for slug in slugs if slug not in listed]
    for slug in slugs:
        status = "listed"
        if slug in others[:LOOK_UPS_MAX]:
            status = client.coin(slug)
        elif slug in others:
            status = "not_asked"
        found.setdefault(status, []).append(slug)
    return found


def describe_coins(watched: Mapping[str, Sequence[str]], plan: str) -> str:
    """Return what a person should know of these coins, in one line."""
    texts = [
        text.format(slugs=", ".join(watched[status]), plan=plan)
        for status, text in _MEANINGS.items()
        if status in watched
    ]
    return "; ".join(texts) or f"{sum(map(len, watched.values()))} coins, all known to the service"
