"""Scores that the rows have rounded: as they were known, or as they became later."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pandas as pd
import pytest

from almanac.database import Database
from tests.almanac.audit.test_batches import judged
from tests.almanac.audit.watched import NOW, PULLS, at, open_watched
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known

EVENTS = 150


def draw_history(random: Random, decimals: int) -> list[tuple[int, float]]:
    """Return the days on which scores became known, often a rounding of the one before."""
    scores = [round(random.uniform(5, 8), 2)]
    for _ in range(random.randrange(3)):
        digits = random.choice([0, 1, 2])
        near = [round(scores[-1], digits), round(random.uniform(5, 8), digits)]
        scores.append(round(random.choice(near), decimals))
    return list(zip(sorted(random.sample(range(2, 8), len(scores))), scores, strict=True))


HISTORIES = {
    f"event-{final}-{number}": draw_history(Random(number), final)
    for final in (1, 2)
    for number in range(EVENTS)
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    versions = [
        Known(event_id=event, version=number, known_from=at(day, 6), date=at(20), impact=score)
        for event, history in HISTORIES.items()
        for number, (day, score) in enumerate(history, 1)
    ]
    path = tmp_path_factory.mktemp("scores") / "warehouse.duckdb"
    publish_by_hand(path, versions, pulls=PULLS, at=NOW)
    with open_watched(path) as database:
        yield database


def decisions(final: int) -> list[tuple[str, int, list[float], float]]:
    """Return event, day, the scores known by then, and the final score."""
    return [
        (event, day, [score for since, score in history if since <= day], history[-1][1])
        for event, history in HISTORIES.items()
        if event.startswith(f"event-{final}-") and round(history[-1][1], final) == history[-1][1]
        for day in range(history[0][0], 9)
    ]


def verdicts(db: Database, rows: list[tuple[str, int, Any]], **options: Any) -> list[str]:
    frame = pd.DataFrame(rows, columns=["event_id", "day", "impact"])
    frame["ts"] = [at(day, 12) for day in frame["day"]]
    return [row["verdict"] for row in judged(db, frame, **options).verdicts]


FORMS: dict[str, tuple[int, Callable[[float], Any]]] = {
    "integers": (0, lambda score: round(score)),
    "floats without decimals": (0, lambda score: float(round(score))),
    "one decimal": (1, lambda score: round(score, 1)),
    "texts": (1, lambda score: f"{score:.1f}".replace(".", ",")),
    "decimals": (1, lambda score: round(Decimal(str(score)), 1)),
    "all decimals": (2, lambda score: score),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_rounding_of_the_known_score_is_no_look_ahead(db: Database, form: str) -> None:
    """Though a later score, or one before, may be equal to it."""
    _, show = FORMS[form]
    rows = [(event, day, show(known[-1])) for event, day, known, _ in decisions(2)]
    assert {*verdicts(db, rows)} <= {"clean", "close_to_known", "outdated"}


@pytest.mark.parametrize("final", [1, 2])
def test_a_final_score_that_is_no_rounding_of_the_known_one_is_found(
    db: Database, final: int
) -> None:
    cases = decisions(final)
    found = verdicts(db, [(event, day, last) for event, day, _, last in cases])
    expected = []
    for _, _, known, last in cases:
        is_rounding = abs(known[-1] - last) <= 0.5 * 10**-final + 1e-6
        outdated = "outdated" if last in known else "scored_later"
        expected.append(
            "clean" if known[-1] == last else "close_to_known" if is_rounding else outdated
        )
    differ = [
        (case, verdict, want)
        for case, verdict, want in zip(cases, found, expected, strict=True)
        if verdict != want
    ]
    assert differ == []
    assert expected.count("scored_later") > 100


def test_the_decimals_of_a_column_are_those_of_all_rows_so_far(db: Database) -> None:
    """The last batch has one row, with a score that may be a rounding if it stands alone."""
    cases = decisions(2)
    event, day, _, last = next(
        case for case in cases if case[3] % 1 == 0 and 0.01 < abs(case[2][-1] - case[3]) < 0.5
    )
    assert verdicts(db, [(event, day, last)]) == ["close_to_known"]
    rows = [*((event, day, last) for event, day, _, last in cases[:50]), (event, day, last)]
    assert verdicts(db, rows, rows_max=50)[-1] == "scored_later"
