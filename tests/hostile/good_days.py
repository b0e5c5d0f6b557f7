"""The good days around the wrong bodies, and bodies made of their rows.

    2026-02-25  an export, the cancellations and a list, as the sandbox gives them
    2026-02-26  the wrong bodies, one a minute
    2026-02-27  a second export and list

Belongs here: what is pulled, and CSV and JSON made of its rows. Does not: wrong bodies.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from catalog.contract.records import LIST_SEPARATOR
from catalog.sandbox.sandbox import Sandbox
from tests.crashes.pulls import DAY, FIRST_DAY, FROM, SOURCE, UNTIL, land_again, pulling
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
from warehouse.landing.landing import Landing

Row = dict[str, str]
WRONG_DAY = FIRST_DAY + DAY
LIST_DAYS = timedelta(days=10)


@dataclass(frozen=True, slots=True)
class Good:
    """The landing of the good days, and the rows of the first."""

    landing: Landing
    before: list[str]
    after: list[str]
    header: list[str]
    rows: list[Row]
    """The rows of the export, as text."""
    listed: list[dict[str, Any]]
    export: Manifest
    listed_batch: Manifest

    def land_before(self, target: Landing) -> None:
        land_again(self.landing, target, self.before)

    def land_after(self, target: Landing) -> None:
        land_again(self.landing, target, self.after)

    def changed(self, number: int, rows: Sequence[Row] | None = None) -> list[Row]:
        """Return the rows, one of them with a new title."""
        kept = [dict(row) for row in (self.rows if rows is None else rows)]
        row = kept[number % len(kept)]
        row["title"] = f"{row['title']}, changed by case {number}"
        row["updatedAt"] = text(at_case(number) - timedelta(minutes=2))
        return kept

    def csv(self, rows: Iterable[Row], header: Sequence[str] | None = None) -> bytes:
        out = io.StringIO(newline="")
        names = self.header if header is None else header
        writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue().encode()


def good_days(sandbox: Sandbox, landing: Landing) -> Good:
    with pulling(sandbox, landing) as (puller, time):
        for number in (0, 2):
            time.now = FIRST_DAY + number * DAY + timedelta(hours=6)
            (export,) = puller.export(FROM, UNTIL)
            time.now += timedelta(minutes=5)
            puller.cancellations(time.now - 2 * DAY)
            time.now += timedelta(hours=1)
            listed = puller.events(time.now.date(), time.now.date() + LIST_DAYS)
            if number == 0:
                puller.categories()
                first, first_list = export.manifest, listed.manifest
    body = b"".join(landing.body(first)).decode()
    header, *rows = csv.reader(io.StringIO(body, newline=""))
    ids = landing.batch_ids()
    return Good(
        landing=landing,
        before=[batch_id for batch_id in ids if batch_id < f"{WRONG_DAY:%Y%m%d}"],
        after=[batch_id for batch_id in ids if batch_id > f"{WRONG_DAY:%Y%m%d}"],
        header=header,
        rows=[dict(zip(header, cells, strict=True)) for cells in rows],
        listed=[row for _, page in landing.pages(first_list) for row in json.loads(page)["data"]],
        export=first,
        listed_batch=first_list,
    )


def at_case(number: int) -> datetime:
    """Return when a case was observed: one a minute."""
    return WRONG_DAY + timedelta(hours=6, minutes=number)


def pull_of(
    good: Good, feed: Feed, at: datetime, *, scope: Scope | None = None, plan: str = "enterprise"
) -> Pull:
    """Return a pull that claims the same as the good pulls of its feed."""
    usual = {"export": good.export.scope, "events": good.listed_batch.scope}
    return Pull(
        feed=feed,
        scope=usual.get(feed, Scope()) if scope is None else scope,
        plan=plan,
        source=SOURCE,
        observed_at=at,
        content_at=at - timedelta(seconds=61),
        landed_at=at,
        requests=1,
    )


def partial(pull: Pull) -> Pull:
    return msgspec.structs.replace(pull, why_incomplete="what is left of it")


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def as_event(row: Row) -> dict[str, Any]:
    """Return a row of the export as a list would give it."""
    event: dict[str, Any] = {name: value or None for name, value in row.items()}
    for name in ("categories", "coins"):
        event[name] = [entry for entry in row[name].split(LIST_SEPARATOR) if entry]
    event["coins"] = [{"slug": slug} for slug in event["coins"]]
    event["isEstimated"] = row["isEstimated"] == "true"
    event["impact"] = float(row["impact"]) if row["impact"] else None
    return event


def page(rows: Iterable[Any], **meta: Any) -> bytes:
    rows = list(rows)
    return json.dumps({"data": rows, "meta": {"total": len(rows), **meta}}).encode()
