"""Two homes: one with all wrong bodies between good days, one with proper bodies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.crashes.pulls import SOURCE
from tests.crashes.tables import Digests, published
from tests.hostile.cases import Case
from tests.hostile.good_days import Good, at_case, good_days, partial, pull_of
from tests.hostile.wrong_answers import WRONG_ANSWERS
from tests.hostile.wrong_exports import WRONG_EXPORTS
from warehouse import queries
from warehouse.history.merge import merge
from warehouse.history.warehouse_file import read_records
from warehouse.home import Home
from warehouse.landing.landing import Landing

ALL = {**WRONG_EXPORTS, **WRONG_ANSWERS}
BESIDE = ("batches", "rejects", "coverage")
"""Tables about batches; the others are about the catalog."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The two homes, with their tables after the wrong day and after the next good day."""

    home: Home
    proper: Home
    cases: dict[str, Case]
    batch_ids: dict[str, str]
    tables: list[Digests]
    expected: list[Digests]
    batches: list[dict[str, Any]]
    rejects: list[dict[str, Any]]
    notes: dict[str, list[str]]
    """By batch id, as the accounts of the batches have them."""

    def batch(self, name: str) -> dict[str, Any]:
        """Return the row of a case in the table `batches`."""
        (batch,) = [batch for batch in self.batches if batch["batch_id"] == self.batch_ids[name]]
        return batch


@pytest.fixture(scope="session")
def good(almanac_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Good:
    return good_days(almanac_sandbox, Landing(tmp_path_factory.mktemp("good") / "landing"))


@pytest.fixture(scope="session")
def seen(good: Good, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    root: Path = tmp_path_factory.mktemp("hostile")
    home, proper = Home(root / "home"), Home(root / "proper")
    home.claim(SOURCE)
    proper.claim(SOURCE)
    cases = {name: make(good, number) for number, (name, make) in enumerate(ALL.items())}
    ids: dict[str, str] = {}
    for target in (home, proper):
        good.land_before(target.landing)
    for number, (name, case) in enumerate(cases.items()):
        ids[name] = land_case(home.landing, good, case, number, case.bodies, whole=case.claims)
        if case.proper is not None:
            land_case(proper.landing, good, case, number, case.proper, whole=case.whole)
    tables = [catalog(target) for target in (home, proper)]
    for target in (home, proper):
        good.land_after(target.landing)
    then = [catalog(target) for target in (home, proper)]
    return Seen(
        home=home,
        proper=proper,
        cases=cases,
        batch_ids=ids,
        tables=[tables[0], then[0]],
        expected=[tables[1], then[1]],
        batches=table(home, "batches"),
        rejects=table(home, "rejects"),
        notes={
            batch_id: record["notes"] for batch_id, record in read_records(home.warehouse).items()
        },
    )


def table(home: Home, name: str) -> list[dict[str, Any]]:
    with queries.connected(home.warehouse) as connection:
        cursor = connection.table(name)
        return [dict(zip(cursor.columns, row, strict=True)) for row in cursor.fetchall()]


def catalog(home: Home) -> Digests:
    """Merge, and return the tables about the catalog."""
    merge(home)
    return published(home.warehouse, without=BESIDE, columns={"batch_id"})


def land_case(
    landing: Landing,
    good: Good,
    case: Case,
    number: int,
    bodies: tuple[bytes, ...],
    *,
    whole: bool = True,
) -> str:
    at = at_case(number)
    pull = pull_of(good, case.feed, at, scope=case.scope)
    received = at if case.feed == "deliveries" else None
    given = [(body, received) for body in bodies]
    return landing.land(pull if whole else partial(pull), given, status=case.http).batch_id
