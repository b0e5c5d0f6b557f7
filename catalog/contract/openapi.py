"""The interface as an OpenAPI 3.0 document: `openapi.yaml` beside this module, and the plan table.

Facts that depend on a plan are added here from the table of plans, so that file and table can't
differ. `x-plans` of the document is the table itself. `x-plans` of an operation, a parameter or a
value says which plans may use it; `x-plans` of a field says what each plan shows. `x-least-plan` is
the lowest plan with access.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import yaml

from catalog.contract import constants
from catalog.contract.plans import (
    ENTERPRISE,
    LEAST_PLAN_FOR_FILTER,
    PLANS,
    ImpactView,
    Plan,
)

Node = dict[str, Any]

_PLANS = tuple(PLANS.values())


@cache
def openapi_document() -> Node:
    """Return the document. It is read once and shared: do not change it."""
    text = files("catalog.contract").joinpath("openapi.yaml").read_text(encoding="utf-8")
    document: Node = yaml.safe_load(text)
    _add_plans(document)
    return document


@cache
def openapi_json() -> bytes:
    """Return the document as UTF-8 JSON, as GET /v2/openapi.json answers it."""
    return msgspec.json.encode(openapi_document())


def _add_plans(document: Node) -> None:
    document["x-plans"] = {plan.name: _row(plan) for plan in _PLANS}
    for path, operations in document["paths"].items():
        if operations["get"].get("security") != []:
            is_export = path == constants.EXPORT_PATH
            _allow(operations["get"], {p.name: p.export or not is_export for p in _PLANS})
    for webhook in document["x-webhooks"].values():
        _allow(webhook["post"], {plan.name: plan.webhooks for plan in _PLANS})
    for parameter in document["components"]["parameters"].values():
        _allow_parameter(parameter)
    schemas = document["components"]["schemas"]
    for event in ("Event", "CancelledEvent"):
        for name, field in schemas[event]["properties"].items():
            _show(field, {plan.name: _shown_field(name, plan) for plan in _PLANS})
    for name in ("majorCount", "peakImpact"):
        shown = {plan.name: "value" if plan.score_counters else "null" for plan in _PLANS}
        _show(schemas["Coin"]["properties"][name], shown)


def _row(plan: Plan) -> Node:
    """Return a plan's row of the tables 8.1 and 8.3; null means no bound."""
    return {
        "monthlyQuota": plan.monthly_quota,
        "ratePerSecond": plan.rate_per_s,
        "burst": plan.burst,
        "limitsAreSetPerKey": plan is ENTERPRISE,
        "keys": plan.keys_max,
        "seats": plan.seats,
        "window": {
            "pastDays": plan.past_days,
            "since": constants.CATALOG_STARTS if plan.past_days is None else None,
            "horizonDays": plan.horizon_days,
        },
        "topCoins": plan.coverage_top,
        "freshnessSeconds": plan.freshness_s,
        "impact": plan.impact.value,
        "webhooks": plan.webhooks,
        "export": plan.export,
        "exportIntervalSeconds": constants.EXPORT_INTERVAL_S if plan.export else None,
    }


def _shown_field(name: str, plan: Plan) -> str:
    """Return `value`, `band`, `null`, or `absent` where the key itself is left out."""
    if name == "cancelledAt" or plan.shows(name):
        return "band" if name == "impact" and plan.impact is ImpactView.BANDED else "value"
    return "absent" if name == "categories" else "null"


def _allow_parameter(parameter: Node) -> None:
    name = parameter["name"]
    for filter_name, least in LEAST_PLAN_FOR_FILTER.items():
        filtered, _, value = filter_name.partition("=")
        if filtered != name:
            continue
        if value:
            parameter.setdefault("x-plans-of-value", {})[value] = _allowed(least)
            parameter.setdefault("x-least-plan-of-value", {})[value] = least.name
        else:
            parameter["x-plans"] = _allowed(least)
            parameter["x-least-plan"] = least.name


def _allowed(least: Plan) -> Mapping[str, bool]:
    return {plan.name: plan.is_at_least(least) for plan in _PLANS}


def _allow(operation: Node, allowed: Mapping[str, bool]) -> None:
    """Say which plans may use an operation; the lowest one only where some may not."""
    operation["x-plans"] = allowed
    if not all(allowed.values()):
        operation["x-least-plan"] = next(name for name, may in allowed.items() if may)


def _show(field: Node, shown: Mapping[str, str]) -> None:
    """Say what each plan shows of a field."""
    field["x-plans"] = shown
    field["x-least-plan"] = next(name for name, form in shown.items() if form in ("value", "band"))
