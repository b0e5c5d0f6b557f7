"""Points, opinions and findings: how a response is compared with our decision.

A point compares responses with our decision. A verdict is `same`, `differs`, `not asked` (no
request was sent for it) or `unclear` (the response does not show it). An action says what Almanac
does about a difference: it accepts it, needs a setting, or does not support it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from catalog.contract.bodies import fold, single_body, usage_fields
from catalog.contract.records import Coin, Event
from pipeline.probe.inquiry import Inquiry, Reply, says_plan

Verdict = Literal["same", "differs", "not asked", "unclear"]
Action = Literal["", "accepts", "setting", "unsupported"]


def _wire_names(record: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(record))


EVENT_FIELDS: Final = _wire_names(Event)
COIN_FIELDS: Final = _wire_names(Coin)


@dataclass(frozen=True, slots=True)
class Opinion:
    """The result of a judgement. `note` says more about the action."""

    verdict: Verdict
    found: str
    action: Action = ""
    note: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointFinding:
    """A point with its verdict. `request` is the number of the response that shows it."""

    point: str
    expected: str
    found: str
    verdict: Verdict
    action: Action
    note: str
    settings: Mapping[str, str]
    request: int | None


class Unclear(Exception):
    """The responses do not show the point; the text says why."""


Judge = Callable[["Replies"], Opinion]


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    expected: str
    asked: str
    """The request that shows it."""
    judge: Judge


class Replies:
    """The responses, by the names of their requests."""

    def __init__(self, inquiry: Inquiry) -> None:
        self._inquiry = inquiry
        self.all = tuple(inquiry.sent)

    def get(self, name: str) -> Reply:
        """Return a response. Raises Unclear: none arrived."""
        reply = self._inquiry.replies[name]
        if reply.status is None:
            raise Unclear(reply.fault)
        return reply

    def good(self, name: str) -> Reply:
        """Return a response with status 200. Raises Unclear: it has another one."""
        reply = self.get(name)
        if reply.status != 200:
            plan = ", for the plan of the key" if says_plan(reply) else ""
            raise Unclear(f"answered {reply.status}{plan}")
        if reply.fault:
            raise Unclear(f"the body is broken: {reply.fault}")
        return reply

    def value(self, name: str) -> Any:
        """Return the JSON of a response. Raises Unclear: it has none."""
        reply = self.good(name)
        found = reply.json()
        if found is None:
            raise Unclear(f"answered with {reply.kind} of {len(reply.body)} bytes")
        return found

    def objects(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a list that are objects. Raises Unclear: there are none."""
        self.value(name)
        rows = [row for row in self.good(name).rows() if isinstance(row, dict)]
        if not rows:
            raise Unclear("the list is empty")
        return rows

    def find(self, name: str) -> Reply | None:
        """Return a response, None if the request was not sent."""
        return self._inquiry.replies.get(name)

    @property
    def plan(self) -> str:
        """The plan by the usage, empty if it is not known."""
        reply = self.find("usage")
        content = None if reply is None else single_body(reply.json())
        named = usage_fields(content).get("plan") if isinstance(content, dict) else None
        return named.lower() if isinstance(named, str) else ""

    @property
    def values(self) -> Mapping[str, str]:
        return self._inquiry.values


def as_expected(found: str) -> Opinion:
    return Opinion("same", found)


def accept(found: str, note: str = "") -> Opinion:
    return Opinion("differs", found, "accepts", note)


def reject(found: str, note: str) -> Opinion:
    return Opinion("differs", found, "unsupported", note)


def require(found: str, note: str = "", **settings: str) -> Opinion:
    given = {f"ALMANAC_{name.upper()}": value for name, value in settings.items()}
    return Opinion("differs", found, "setting", note, given)


def compare(found: str, expected: str, note: str = "") -> Opinion:
    return as_expected(found) if found == expected else accept(found, note)


def compare_names(
    rows: list[dict[str, Any]], expected: tuple[str, ...], what: str, optional: str = ""
) -> Opinion:
    names = list(dict.fromkeys(name for row in rows for name in row))
    folded = {fold(name): name for name in names}
    missing = [name for name in expected if fold(name) not in folded and name != optional]
    other = [name for name in names if fold(name) not in {fold(known) for known in expected}]
    spelt = [name for name in names if name not in expected and name not in other]
    parts = []
    if missing:
        parts.append(f"missing: {', '.join(missing)}")
    if other:
        parts.append(f"additional: {', '.join(other)}")
    if spelt:
        parts.append(f"spelt otherwise: {', '.join(spelt)}")
    if not parts:
        return as_expected(f"all {len(names)} names")
    if missing and expected[0] in missing:
        return reject("; ".join(parts), f"{what} without `{expected[0]}` are rejected")
    return accept("; ".join(parts), "other fields are kept as `extra`" if other else "")
