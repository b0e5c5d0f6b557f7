"""Verdicts on the usage, the headers, the clock and the OpenAPI document."""

import re
from datetime import UTC, timedelta
from itertools import pairwise
from typing import Final

from catalog.contract import constants
from catalog.contract.bodies import is_wrapped, single_body, usage_fields
from catalog.contract.plans import PLANS
from pipeline.probe.verdicts import (
    Opinion,
    Replies,
    Unclear,
    accept,
    as_expected,
    compare,
    reject,
    require,
)
from resources.service_clock import MAX_SKEW, NOTABLE, read_http_date

USAGE_NAMES: Final = ("plan", "period", "used", "limit", "remaining", "resetAt", "rate", "burst")
_RATE_HEADERS: Final = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
_SIGNATURE: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*-Signature)\b")


def judge_usage_names(replies: Replies) -> Opinion:
    content = single_body(replies.value("usage"))
    if not isinstance(content, dict):
        raise Unclear("the usage is not an object")
    names = ", ".join(content)
    if set(content) == set(USAGE_NAMES):
        return as_expected(names)
    known = usage_fields(content)
    if not {"used", "limit", "remaining"} & known.keys():
        note = "requests are counted by this machine; set ALMANAC_MONTHLY_QUOTA if it is not known"
        return reject(names, note)
    return accept(names, f"read as {', '.join(known)}")


def judge_usage_plan(replies: Replies) -> Opinion:
    if replies.plan in PLANS:
        return as_expected(replies.plan)
    shown = f"the plan {replies.plan!r}" if replies.plan else "no plan"
    quotas = {str(plan.monthly_quota): name for name, plan in PLANS.items() if plan.monthly_quota}
    reply = replies.good("usage")
    content = single_body(reply.json())
    stated = usage_fields(content).get("limit") if isinstance(content, dict) else None
    by_quota = quotas.get(str(stated)) or quotas.get(reply.headers.get("x-ratelimit-limit", ""))
    if by_quota is None:
        return reject(shown, f"set ALMANAC_PLAN to one of {', '.join(PLANS)}")
    return require(f"{shown}; the quota is that of {by_quota}", plan=by_quota)


def judge_usage_form(replies: Replies) -> Opinion:
    value = replies.value("usage")
    return compare("wrapped in `data`" if is_wrapped(value) else "bare object", "bare object")


def judge_usage_reset(replies: Replies) -> Opinion:
    content = single_body(replies.value("usage"))
    known = usage_fields(content) if isinstance(content, dict) else {}
    reset = known.get("resetAt") or (known.get("period") or {}).get("end")
    if reset is None:
        return accept("no reset", "the month is taken to end on its last day, UTC")
    if isinstance(reset, int):
        return accept("seconds since 1970")
    return as_expected("a timestamp") if "T" in str(reset) else accept(str(reset))


def judge_rate_headers(replies: Replies) -> Opinion:
    headers = replies.good("usage").headers
    present = [name for name in _RATE_HEADERS if name in headers]
    if len(present) == len(_RATE_HEADERS):
        return as_expected("all three")
    others = [name for name in headers if "ratelimit" in name and name not in present]
    found = ", ".join((*present, *others)) or "none"
    return accept(found, "the rest of the month is counted from the usage")


def judge_reset_form(replies: Replies) -> Opinion:
    text = replies.good("usage").headers.get("x-ratelimit-reset")
    if text is None:
        raise Unclear("no X-RateLimit-Reset")
    if not text.isdecimal():
        return as_expected("a timestamp") if "T" in text else accept(text)
    return accept("seconds since 1970" if len(text) >= 10 else "seconds from now")


def judge_retry_after(replies: Replies) -> Opinion:
    texts = [(reply.status, reply.headers.get("retry-after")) for reply in replies.all]
    of_429 = [text for status, text in texts if status == 429]
    if of_429:
        text = of_429[0]
        if text is None:
            return accept("no Retry-After on a 429", "a second is waited")
        return as_expected("seconds") if text.isdecimal() else accept(_date_form(text))
    others = [text for status, text in texts if text is not None]
    if others:
        return accept(f"on other responses, as {_date_form(others[0])}")
    raise Unclear("no response was 429, and none is provoked")


def _date_form(text: str) -> str:
    if text.isdecimal():
        return "seconds"
    return "an HTTP date" if read_http_date(text) is not None else "another form"


def judge_clock(replies: Replies) -> Opinion:
    reply = replies.good("usage")
    date = read_http_date(reply.headers.get("date"))
    if date is None:
        return accept("no Date", "times are by the machine's clock")
    assert reply.received_at is not None
    ahead = date - reply.received_at.astimezone(UTC)
    shown = f"{ahead.total_seconds():+,.0f} s"
    if abs(ahead) <= NOTABLE:
        return as_expected(shown)
    if abs(ahead) <= MAX_SKEW:
        return accept(shown, "times follow the service's clock; correct the machine's")
    days = str(int(abs(ahead) / timedelta(days=1)) + 2)
    return require(shown, "or correct the machine's clock", max_clock_skew_days=days)


def judge_usage_counts(replies: Replies) -> Opinion:
    counts = [
        int(text)
        for reply in replies.all
        if reply.question.kind == "api"
        and (text := reply.headers.get("x-ratelimit-remaining", "")).isdecimal()
    ]
    steps = [before - after for before, after in pairwise(counts)]
    if not steps:
        raise Unclear("no X-RateLimit-Remaining")
    ones = sum(step == 1 for step in steps)
    if ones * 2 >= len(steps):
        return as_expected(f"one for each request, {ones} of {len(steps)} times")
    return accept(f"the rest fell by {min(steps)} to {max(steps)}", "the header is followed")


def judge_document(replies: Replies) -> Opinion:
    reply = replies.get("openapi")
    value = reply.json()
    if reply.status == 200 and isinstance(value, dict) and "openapi" in value:
        version = str(value["openapi"])
        return as_expected(f"OpenAPI {version}") if version.startswith("3.") else accept(version)
    return accept(f"answered {reply.status}", "Almanac does not need it")


def judge_signature(replies: Replies) -> Opinion:
    reply = replies.good("openapi")
    names = set(_SIGNATURE.findall(reply.body.decode("utf-8", "replace")))
    if not names:
        raise Unclear("the OpenAPI document names no such header")
    if constants.SIGNATURE_HEADER in names:
        return as_expected(constants.SIGNATURE_HEADER)
    name = min(names)
    return require(name, "as the OpenAPI document names it", signature_header=name)


def judge_redirects(replies: Replies) -> Opinion:
    moved = [reply for reply in replies.all if reply.status in (301, 302, 303, 307, 308)]
    if not moved and not any(reply.status == 200 for reply in replies.all):
        raise Unclear("no request succeeded")
    if not moved:
        return as_expected("none")
    where = moved[0].headers.get("location", "nowhere")
    return reject(f"{moved[0].path} to {where}", "the key is not sent to another address")
