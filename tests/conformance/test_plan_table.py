"""The plan table of the OpenAPI document says what the server that publishes it really answers.

Each operation, parameter and field is asked for with a key of each plan, over HTTP.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.contract.plans import PLANS
from catalog.server.accounts import Account, Grant, StoredKey, key_digest, make_grant
from tests.server.small_catalog import DAY, TODAY, Service, event, serving, view

Node = dict[str, Any]
ABSENT = object()
IN_ALL_PLANS = TODAY + DAY
VALUES = {"impactMin": "5", "categories": "release", "sortBy": "date_asc", "tracked": "true"}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    whole = event("whole", IN_ALL_PLANS, date_end=IN_ALL_PLANS + DAY)
    with serving(view([whole])) as service:
        yield service


@pytest.fixture(scope="module")
def document(service: Service) -> Node:
    found: Node = service.client.get("/v2/openapi.json").json()
    return found


def form_of(value: object) -> str:
    if value is ABSENT:
        return "absent"
    if value is None:
        return "null"
    return "band" if value in ("Low", "Mid", "High", "Critical") else "value"


@pytest.mark.parametrize("plan", PLANS)
def test_every_operation_answers_the_plans_that_it_names(
    service: Service, document: Node, plan: str
) -> None:
    samples = {"slug": "first", "id": "whole"}
    for path, operations in document["paths"].items():
        operation = operations["get"]
        if operation.get("security") == []:
            assert "x-plans" not in operation, path
            continue
        status = service.get(path.format(**samples), plan).status_code
        assert status == (200 if operation["x-plans"][plan] else 403), path


@pytest.mark.parametrize("plan", PLANS)
def test_every_parameter_is_for_the_plans_that_it_names(
    service: Service, document: Node, plan: str
) -> None:
    gated = 0
    for parameter in document["components"]["parameters"].values():
        if parameter["in"] != "query" or parameter["name"] == "cursor":
            continue
        name = parameter["name"]
        asked = {VALUES.get(name, str(parameter.get("example"))): parameter.get("x-plans", {})}
        asked |= parameter.get("x-plans-of-value", {})
        for value, plans in asked.items():
            gated += bool(plans)
            answer = service.get(f"/v2/events?{name}={value}", plan)
            assert answer.status_code == (200 if plans.get(plan, True) else 403), (name, value)
    assert gated == 3


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("schema", "path"), [("Event", "/v2/events/whole"), ("Coin", "/v2/coins/first")]
)
def test_every_field_has_the_form_that_the_document_names(
    service: Service, document: Node, plan: str, schema: str, path: str
) -> None:
    fields = document["components"]["schemas"][schema]["properties"]
    shown = service.get(path, plan).json()
    assert set(shown) <= set(fields)
    for name, field in fields.items():
        expected = field.get("x-plans", {}).get(plan, "value")
        assert form_of(shown.get(name, ABSENT)) == expected, name
    assert ("x-plans" in fields["slug"]) == (schema == "Event")


@pytest.mark.parametrize("plan", PLANS)
def test_limits_of_a_new_key_are_those_of_the_table(document: Node, plan: str) -> None:
    row = document["x-plans"][plan]
    key: Grant = make_grant(
        Account(name="new", plan=plan),
        StoredKey(id="new", sha256=key_digest("new"), created_at=TODAY),
    )
    with serving(view(), keys=[key]) as service:
        usage = service.get("/v2/usage", "new").json()
    assert usage["plan"] == plan
    assert (usage["rate"], usage["burst"]) == (row["ratePerSecond"], row["burst"])
    assert usage["limit"] == row["monthlyQuota"]


# Plan, quota, rate, burst, keys, seats, days ahead, days past, coins, seconds behind (8.1, 8.3)
INTERFACE: list[tuple[Any, ...]] = [
    ("free", 3_000, 1, 5, 1, 1, 7, 0, 100, 86_400),
    ("standard", 30_000, 3, 15, 5, 3, 90, 0, None, 60),
    ("pro", 300_000, 10, 50, 10, 5, None, 30, None, 60),
    ("elite", 3_000_000, 25, 150, 20, 10, None, None, None, 60),
    ("enterprise", None, 100, 500, None, None, None, None, None, 60),
]


def test_the_table_is_that_of_the_interface(document: Node) -> None:
    table = document["x-plans"]
    assert list(table) == [row[0] for row in INTERFACE]
    for name, *expected in INTERFACE:
        row = table[name]
        limits = [row[key] for key in ("monthlyQuota", "ratePerSecond", "burst", "keys", "seats")]
        window = row["window"]
        found = [*limits, window["horizonDays"], window["pastDays"], row["topCoins"]]
        assert [*found, row["freshnessSeconds"]] == expected, name
        assert window["since"] == ("2017-01-01" if window["pastDays"] is None else None)
        high = name in ("elite", "enterprise")
        assert row["webhooks"] == row["export"] == high
        assert row["exportIntervalSeconds"] == (60 if high else None)
        assert row["limitsAreSetPerKey"] == (name == "enterprise")
    assert [row["impact"] for row in table.values()] == [
        *("none", "none", "banded", "precise", "precise"),
    ]


def test_push_is_for_the_plans_that_the_webhook_names(document: Node) -> None:
    named = document["x-webhooks"]["delivery"]["post"]["x-plans"]
    assert {plan for plan, has_push in named.items() if has_push} == {"elite", "enterprise"}
