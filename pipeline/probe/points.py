"""The points that the specification leaves open, in the order of the table."""

from collections.abc import Iterator
from typing import Final

from catalog.contract import constants
from catalog.contract.plans import PLANS
from pipeline.probe.account_points import (
    USAGE_NAMES,
    judge_clock,
    judge_document,
    judge_rate_headers,
    judge_redirects,
    judge_reset_form,
    judge_retry_after,
    judge_signature,
    judge_usage_counts,
    judge_usage_form,
    judge_usage_names,
    judge_usage_plan,
    judge_usage_reset,
)
from pipeline.probe.catalog_points import (
    DATE_TYPES,
    judge_above_maximum,
    judge_bounds,
    judge_cancellation_fields,
    judge_cancellations_since,
    judge_cancelled,
    judge_category_fields,
    judge_category_ids,
    judge_coin_fields,
    judge_coin_limit,
    judge_coin_search,
    judge_coins_in_event,
    judge_cursor_form,
    judge_cursor_place,
    judge_date_types,
    judge_default_limit,
    judge_error_form,
    judge_event_fields,
    judge_filter_categories,
    judge_filter_coins,
    judge_impact_filter,
    judge_list_form,
    judge_page_of_hundred,
    judge_second_page,
    judge_single,
    judge_status_of,
    judge_total,
    judge_unknown_event,
)
from pipeline.probe.export_points import (
    judge_export_bytes,
    judge_export_columns,
    judge_export_lists,
    judge_export_order,
    judge_export_path,
    judge_export_type,
    judge_export_validators,
    judge_gzip,
    judge_unmodified,
)
from pipeline.probe.inquiry import Inquiry
from pipeline.probe.verdicts import (
    COIN_FIELDS,
    EVENT_FIELDS,
    Opinion,
    Point,
    PointFinding,
    Replies,
    Unclear,
    Verdict,
)

_SHOWN: Final = 160


def judge_points(inquiry: Inquiry, *, export_path: str) -> list[PointFinding]:
    """Return a finding for every point."""
    replies = Replies(inquiry)
    found = []
    for point in list_points(export_path):
        reply = inquiry.replies.get(point.asked)
        if reply is None:
            why = inquiry.unasked.get(point.asked, "the request was not sent")
            opinion = Opinion("not asked", why)
        else:
            try:
                opinion = point.judge(replies)
            except Unclear as error:
                opinion = Opinion("unclear", str(error))
            except (AttributeError, IndexError, KeyError, TypeError, ValueError):
                # A value of another type than any form has: the evidence shows it.
                opinion = Opinion(
                    "unclear", f"a form that is not known, see request {reply.number}"
                )
        found.append(
            PointFinding(
                point.name,
                point.expected,
                opinion.found[:_SHOWN],
                *(opinion.verdict, opinion.action, opinion.note, opinion.settings),
                None if reply is None else reply.number,
            )
        )
    return found


def list_points(export_path: str) -> Iterator[Point]:
    """Yield every point, in the order of the table."""
    names = ", ".join(USAGE_NAMES)
    yield Point("usage: names", names, "usage", judge_usage_names)
    yield Point("usage: plan", ", ".join(PLANS), "usage", judge_usage_plan)
    yield Point("usage: form", "bare object", "usage", judge_usage_form)
    yield Point("usage: reset", "a timestamp", "usage", judge_usage_reset)
    yield Point(
        "rate headers", "X-RateLimit-Limit, -Remaining, -Reset", "usage", judge_rate_headers
    )
    yield Point("rate headers: reset", "a timestamp", "usage", judge_reset_form)
    yield Point("requests counted", "one for each request", "events", judge_usage_counts)
    yield Point("Retry-After", "seconds, on 429", "usage", judge_retry_after)
    yield Point("clock", "within 2 minutes", "usage", judge_clock)
    yield Point("redirects", "none", "usage", judge_redirects)
    yield Point("OpenAPI document", "OpenAPI 3", "openapi", judge_document)
    yield Point("signature header", constants.SIGNATURE_HEADER, "openapi", judge_signature)
    yield Point(
        "categories: form",
        "`data` and `meta`",
        "categories",
        judge_list_form("categories", meta=False),
    )
    yield Point("categories: ids", "slugs", "categories", judge_category_ids)
    yield Point("categories: fields", "id, name", "categories", judge_category_fields)
    yield Point("events: form", "`data` and `meta`", "events", judge_list_form("events"))
    yield Point("events: fields", f"{len(EVENT_FIELDS)} names", "events", judge_event_fields)
    yield Point("events: dateType", ", ".join(sorted(DATE_TYPES)), "events", judge_date_types)
    yield Point("events: coins", "slug, symbol, name", "events", judge_coins_in_event)
    yield Point("events: default limit", "50", "events", judge_default_limit)
    yield Point("events: limit of 100", "applied", "large_page", judge_page_of_hundred)
    yield Point("events: limit of 101", "400", "larger_page", judge_above_maximum)
    yield Point("events: total", "`meta.total`", "page", judge_total)
    yield Point("cursor: place", "`meta.cursor`", "page", judge_cursor_place)
    yield Point("cursor: form", "opaque text", "page", judge_cursor_form)
    yield Point("cursor: next page", "other rows", "next_page", judge_second_page)
    yield Point(
        "cursor: invalid", "400", "wrong_cursor", judge_status_of("wrong_cursor", 400, (422,))
    )
    yield Point("events: from and to", "inclusive dates", "day", judge_bounds)
    yield Point("events: categories", "ids filter", "category", judge_filter_categories)
    yield Point("events: coins filter", "slugs filter", "coin_events", judge_filter_coins)
    yield Point("events: impactMin, sortBy", "403 below Elite", "impact", judge_impact_filter)
    yield Point("single event", "bare", "event", judge_single("event"))
    yield Point("unknown event", "404", "unknown_event", judge_unknown_event)
    yield Point("error body", "`error` and `message`", "unknown_event", judge_error_form)
    yield Point(
        *("wrong parameter", "400", "wrong_parameter"),
        judge_status_of("wrong_parameter", 400, (422,)),
    )
    yield Point("cancelled event", "410", "cancelled_event", judge_cancelled)
    yield Point(
        "cancellations: form",
        "`data` and `meta`",
        "cancellations",
        judge_list_form("cancellations"),
    )
    yield Point(
        "cancellations: fields", "id, cancelledAt", "cancellations", judge_cancellation_fields
    )
    yield Point("cancellations: since", "inclusive", "since", judge_cancellations_since)
    yield Point("coins: form", "`data` and `meta`", "coins", judge_list_form("coins"))
    yield Point("coins: fields", f"{len(COIN_FIELDS)} names", "coins", judge_coin_fields)
    yield Point("coins: limit of 200", "200", "coins", judge_coin_limit)
    yield Point("coins: q", "substring", "coin_search", judge_coin_search)
    yield Point("single coin", "bare", "coin", judge_single("coin"))
    yield Point("export: path", export_path, "export", judge_export_path(export_path))
    yield Point("export: type", "text/csv", "export", judge_export_type)
    yield Point("export: columns", "as the fields", "export", judge_export_columns)
    yield Point("export: order", "as the fields", "export", judge_export_order)
    yield Point("export: lists", "joined with ;", "export", judge_export_lists)
    yield Point("export: bytes", "UTF-8, CRLF", "export", judge_export_bytes)
    yield Point("export: validators", "ETag, Last-Modified", "export", judge_export_validators)
    yield Point("compression", "gzip or none", "large_page", judge_gzip)
    yield Point("known ETag", "304", "unmodified", judge_unmodified)
    yield Point("V1 paths", "403", "v1", judge_status_of("v1", 403, (401, 404, 410)))
    yield Point("wrong key", "403", "wrong_key", judge_status_of("wrong_key", 403, (401,)))


def needed_settings(findings: list[PointFinding]) -> dict[str, str]:
    """Return the settings that make Almanac work with the service, by name."""
    return {name: value for found in findings for name, value in found.settings.items()}


def count_verdicts(findings: list[PointFinding]) -> dict[str, int]:
    """Return the number of findings with each verdict."""
    verdicts: tuple[Verdict, ...] = ("same", "differs", "not asked", "unclear")
    return {verdict: sum(found.verdict == verdict for found in findings) for verdict in verdicts}
