"""Tables that were selected by what is known today, against the rule that selects as of a decision.

The rule is written once more here, in plain Python over the versions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

import almanac
from almanac.audit.report import Audit
from almanac.command_line import main
from almanac.core.errors import InvalidArgument, UnknownName
from almanac.database import Database
from tests.almanac.audit.watched import at, audit_row, open_watched
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known
from tests.warehouse.answers.watched_sandbox import LAST, PULLS, Watched, watch

DAY = timedelta(days=1)
Rule = Mapping[str, Any]
Pairs = set[tuple[str, datetime]]


@pytest.fixture(scope="module")
def watched() -> Watched:
    return watch()


@pytest.fixture(scope="module")
def db(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("universe") / "warehouse.duckdb"
    options = {"claims": watched.claims, "absences": watched.absences}
    publish_by_hand(path, watched.versions, pulls=PULLS, **options)
    with almanac.open(path, clock=lambda: LAST) as database:
        yield database


class PlainUniverse:
    """What a rule selects, from lists of versions."""

    def __init__(self, watched: Watched) -> None:
        self.histories: dict[str, list[Known]] = defaultdict(list)
        for version in watched.versions:
            self.histories[version.event_id].append(version)
        self._absences = watched.absences

    def known(self, event_id: str, when: datetime) -> Known | None:
        """Return the version of an event that was known at an instant."""
        known = [each for each in self.histories[event_id] if each.known_from <= when]
        return known[-1] if known else None

    def selects(self, rule: Rule, event_id: str, when: datetime) -> bool:
        version = self.known(event_id, when)
        if version is None or not self._passes(rule, version):
            return False
        assert version.date is not None
        if "lead" in rule:
            return (version.date - rule["lead"]).date() == when.date()
        is_day = version.date.time() == datetime.min.time()
        ends = version.date + DAY if is_day else version.date
        return ends > when and version.date <= when + rule["within"]

    def selected(self, rule: Rule, decisions: list[datetime]) -> Pairs:
        """Return the events that a rule selects, each with its decision."""
        if "within" in rule:
            return {
                (event_id, when)
                for event_id in self.histories
                for when in decisions
                if self.selects(rule, event_id, when) and not self._is_missing(event_id, when)
            }
        found = set()
        first, last = min(decisions).date(), max(decisions).date()
        for event_id, history in self.histories.items():
            for version in history:
                when = version.date - rule["lead"] if version.date else None
                if (
                    when is not None
                    and first <= when.date() <= last
                    and self.known(event_id, when) is version
                    and self._passes(rule, version)
                    and not self._is_missing(event_id, when)
                ):
                    found.add((event_id, when))
        return found

    def _passes(self, rule: Rule, version: Known) -> bool:
        names = {name.lower() for name in version.categories}
        return (
            version.date is not None
            and not version.is_estimated
            and version.date_type == "date"
            and (rule.get("status") == "all" or version.status == rule.get("status", "scheduled"))
            and ("min_impact" not in rule or (version.impact or 0) >= rule["min_impact"])
            and ("categories" not in rule or bool(names & {rule["categories"].lower()}))
        )

    def _is_missing(self, event_id: str, when: datetime) -> bool:
        changes = [
            each for each in self._absences if each.event_id == event_id and each.changed_at <= when
        ]
        return bool(changes) and max(changes, key=lambda each: each.changed_at).since is not None


@pytest.fixture(scope="module")
def plain(watched: Watched) -> PlainUniverse:
    return PlainUniverse(watched)


DECISIONS = [PULLS[30] + number * timedelta(days=2, hours=5) for number in range(18)]
RULES: list[Rule] = [
    {"within": timedelta(days=7)},
    {"within": timedelta(days=20), "min_impact": 5.0},
    {"within": timedelta(days=10), "status": "all", "categories": "AMA"},
    {"within": timedelta(days=30), "status": "cancelled"},
    {"lead": timedelta(days=3)},
    {"lead": timedelta(hours=30), "min_impact": 4.0},
]


def audit_pairs(db: Database, pairs: Pairs, rule: Rule, decisions: list[datetime]) -> Audit:
    """Return the audit of a table with these events, and a row without one for each decision."""
    rows = [{"next_event_id": event_id, "ts": when} for event_id, when in sorted(pairs)]
    rows += [{"next_event_id": None, "ts": when} for when in decisions]
    return db.audit(pd.DataFrame(rows), universe=rule)


def differences(audit: Audit) -> dict[str, Pairs]:
    found: dict[str, Pairs] = {"absent": set(), "not_selected": set()}
    assert audit.universe is not None
    for row in audit.universe:
        found[row["problem"]].add((row["event_id"], row["decided_at"]))
    return found


HINDSIGHT: dict[str, Callable[[Known, Known], bool]] = {
    "cancelled events dropped": lambda then, last: last.status == "scheduled",
    "moved events dropped": lambda then, last: last.date == then.date,
    "by the score of today": lambda then, last: (last.impact or 0) >= (then.impact or 0),
}


@pytest.mark.parametrize(("name", "rule"), [*zip(HINDSIGHT, RULES[::2], strict=True)], ids=str)
def test_events_that_hindsight_dropped_are_listed(
    db: Database, plain: PlainUniverse, name: str, rule: Rule
) -> None:
    pairs = plain.selected(rule, DECISIONS)
    kept = set()
    for event_id, when in pairs:
        then = plain.known(event_id, when)
        assert then is not None
        if HINDSIGHT[name](then, plain.histories[event_id][-1]):
            kept.add((event_id, when))
    audit = audit_pairs(db, kept, rule, DECISIONS)
    assert pairs - kept
    assert differences(audit) == {"absent": pairs - kept, "not_selected": set()}
    assert audit.groups["leak"] == 0
    assert not audit.is_clean
    with pytest.raises(almanac.LookAhead, match="differs from the rule of its universe"):
        audit.assert_clean()
    assert audit_pairs(db, pairs, rule, DECISIONS).is_clean


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_any_table_differs_from_a_rule_as_the_plain_formulation_says(
    db: Database, plain: PlainUniverse, rule: Rule
) -> None:
    random = Random(str(rule))
    selected = plain.selected(rule, DECISIONS)
    table = {pair for pair in selected if random.random() < 0.7}
    table |= {
        (event_id, random.choice(DECISIONS))
        for event_id in random.sample(sorted(plain.histories), 120)
    }
    if "lead" in rule:
        days = {(event_id, when.date()) for event_id, when in table}
        absent = {pair for pair in selected if (pair[0], pair[1].date()) not in days}
    else:
        absent = selected - table
    unselected = {
        (event_id, when)
        for event_id, when in table
        if plain.known(event_id, when) is not None and not plain.selects(rule, event_id, when)
    }
    found = differences(audit_pairs(db, table, rule, DECISIONS))
    assert found == {"absent": absent, "not_selected": unselected}
    assert absent and unselected


def test_decisions_without_a_row_are_compared_if_the_rule_says_how_often_it_decides(
    watched_file: Path,
) -> None:
    with open_watched(watched_file) as db:
        rows = [{"next_event_id": None, "ts": when} for when in (at(2), at(4))]
        audit = db.audit(rows, universe={"within": "23d", "every": "1d"})
        assert audit.universe is not None
        days = {row["decided_at"] for row in audit.universe}
        assert days == {at(2), at(3), at(4)}


def test_a_difference_says_what_changed_later(watched_file: Path) -> None:
    with open_watched(watched_file) as db:
        audit = audit_row(db, {"event_id": "moved", "ts": at(2)}, universe={"lead": "18d"})
        assert audit.universe is not None
        (row,) = [row for row in audit.universe if row["event_id"] == "scored"]
        assert (row["problem"], row["decided_at"], row["impact"]) == ("absent", at(2, 14), 5.0)
        assert row["changed_later"] == "revised"
        assert "event back: the table lacks it. Known then was title, 2026-03-20" in repr(audit)
        assert '"absent"' in audit.to_json()
        assert "the table lacks it" in audit.to_html()


def test_a_rule_that_can_t_be_used_is_an_error(watched_file: Path) -> None:
    row = {"event_id": "moved", "ts": at(2)}
    wrong: list[tuple[Rule, str]] = [
        ({}, "either within"),
        ({"within": "7d", "lead": "1d"}, "either within"),
        ({"within": "soon"}, "not a duration"),
        ({"within": "7d", "rank": 10}, "'rank' is not a filter; expected within, lead"),
        ({"lead": "7d", "every": "1d"}, "every, the time between decisions, must be"),
        ({"within": "7d", "status": "gone"}, "expected scheduled"),
    ]
    with open_watched(watched_file) as db:
        for rule, message in wrong:
            with pytest.raises(InvalidArgument, match=message):
                audit_row(db, row, universe=rule)
        with pytest.raises(UnknownName):
            audit_row(db, row, universe={"within": "7d", "coins": "moon"})


def test_the_command_takes_the_rule_and_fails_for_what_the_table_lacks(
    tmp_path: Path, watched_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signals = tmp_path / "signals.csv"
    signals.write_text("event_id,ts\nmoved,2026-03-02\n")
    words = ["audit", str(signals), "--home", str(watched_file), "--strict"]
    assert main(words) == 0
    universe = ["--universe", "within=19d", "--universe", "status=scheduled,cancelled"]
    assert main([*words, *universe]) == 1
    shown = capsys.readouterr()
    assert "event scored: the table lacks it" in shown.out
    assert "the table differs from the rule of its universe" in shown.err
    assert main([*words, "--universe", "within"]) == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err
