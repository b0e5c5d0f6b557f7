"""The published history equals the sandbox's truth, as far as the observations showed it.

The oracle is plain Python over the truth; where it differs from the warehouse, one of the two
has misread the design. Check both against the design; never change one to match the other.
"""

import ast
import sys
from collections import Counter
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from tests.history.model.comparison import (
    EVENT_COLUMNS,
    VERSION_COLUMNS,
    Rows,
    absences_of,
    as_of,
    differences,
    events_of,
    published,
    published_as_of,
    versions_of,
)
from tests.history.model.oracle import Oracle
from tests.history.model.versions import KINDS
from tests.history.stories.disk import without_syncs
from tests.history.stories.merged_story import (
    Merged,
    MergedStory,
    after_midnight,
    merged_in,
)
from tests.history.stories.scenario import QUICK
from tests.reading import reading

OFTEN = 5
INSTANTS, INSTANTS_OF_LONG = 30, 500
CLAIMED_EACH = 5
"""Every fifth instant is also queried for what was claimed."""
SECOND = timedelta(seconds=1)
OF_THE_ORACLE = ("oracle", "observations", "scopes", "versions")
CIRCUMSTANCES = (
    *("404", "410", "cancellations that waited", "cancelled after withdrawn", "found again"),
    *("first seen though half watched", "flagged exports", "scores unknown by their band"),
    *("missing from events of free", "missing from events of standard"),
    *("missing from export of elite", "shown before its absence", "stale 404"),
    *("stale cancellations", "stale deliveries", "stale events", "stale export"),
    *("twice absent, not covered far enough back", "withdrawn by 404", "withdrawn by exports"),
)


@pytest.fixture(scope="module")
def story(landed_story: MergedStory) -> MergedStory:
    return landed_story


@pytest.fixture(scope="module")
def oracle(story: MergedStory) -> Oracle:
    return story.oracle()


@pytest.fixture(scope="module")
def merged(story: MergedStory, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """The story merged as it was landed, with late deliveries: three days at a time, or one."""
    days = [*after_midnight(story.story.batches)]
    step = 3 if story.story.setting == QUICK else 1
    parts = [[*chain(*days[first : first + step])] for first in range(0, len(days), step)]
    with without_syncs():
        return merged_in(story, tmp_path_factory.mktemp("merged") / "home", parts)


class TestStory:
    """What the tests below need: a story without these would prove little."""

    def test_the_oracle_imports_nothing_of_ours_but_the_sandbox(self) -> None:
        own = {f"tests.history.model.{module}" for module in OF_THE_ORACLE}
        for name in OF_THE_ORACLE:
            tree = ast.parse((Path(__file__).parent / "model" / f"{name}.py").read_text())
            for node in ast.walk(tree):
                modules = {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
                if isinstance(node, ast.Import):
                    modules = {alias.name for alias in node.names}
                for module in modules - own:
                    allowed = module.partition(".")[0] in sys.stdlib_module_names
                    sandboxed = module.startswith(("catalog.sandbox.", "tests.sandbox.true_world"))
                    assert allowed or sandboxed, f"{name}: {module}"

    def test_every_kind_of_change_is_seen_often(self, oracle: Oracle) -> None:
        observed = [version for version in oracle.versions() if version.basis == "observed"]
        seen = Counter(kind for version in observed for kind in version.kinds)
        assert {kind: seen[kind] for kind in KINDS if seen[kind] < OFTEN} == {}
        later = Counter(
            kind for version in observed if version.version > 1 for kind in version.kinds
        )
        assert later["revealed"] >= OFTEN

    def test_every_hard_case_occurs(self, oracle: Oracle) -> None:
        assert [
            circumstance for circumstance in CIRCUMSTANCES if not oracle.tally[circumstance]
        ] == []


class TestMergedDayByDay:
    def test_events_equal_the_truth_after_merges(self, story: MergedStory, merged: Merged) -> None:
        assert len(merged.moments) >= 4
        _fail_if_different(_first_difference(story, merged))

    def test_versions_equal_the_truth(
        self, story: MergedStory, oracle: Oracle, merged: Merged
    ) -> None:
        claimed = versions_of(oracle, "claimed")
        assert min(version for _, version in claimed) < 0
        assert {row["status"] for row in claimed.values()} == {"scheduled", "cancelled"}
        _fail_if_different(_different_versions(story, oracle, merged))

    def test_absences_equal_those_of_the_truth(self, oracle: Oracle, merged: Merged) -> None:
        expected = absences_of(oracle)
        assert len(expected) >= OFTEN
        with reading(merged.home) as connection:
            rows = connection.sql("SELECT event_id, changed_at, missing_since FROM event_absences")
            assert set(rows.fetchall()) == expected

    def test_events_as_of_any_instant_equal_the_truth(
        self, story: MergedStory, oracle: Oracle, merged: Merged
    ) -> None:
        count = INSTANTS if story.story.setting == QUICK else INSTANTS_OF_LONG
        assert _differ_as_of(story, oracle, merged, count) == []


def _fail_if_different(differences: str) -> None:
    if differences:
        pytest.fail(differences, pytrace=False)


def _first_difference(story: MergedStory, merged: Merged) -> str:
    """Return the first difference of the published events from the truth, or nothing."""
    oracle, observations = Oracle(story.showing), story.story.folded()
    done = 0
    for count, found in merged.moments:
        for observation in observations[done:count]:
            oracle.fold(observation)
        done = count
        report = differences(events_of(oracle), found, observations[:count], oracle.events)
        if report:
            return f"after {count} observations of {len(observations)}: {report}"
    return "" if done == len(observations) else "the last merge was not compared"


def _different_versions(story: MergedStory, oracle: Oracle, merged: Merged) -> str:
    with reading(merged.home) as connection:
        events = published(connection, "events", EVENT_COLUMNS)
    observations = story.story.observations
    return (
        _different(story, oracle, merged, "event_versions", versions_of(oracle))
        or _different(story, oracle, merged, "event_claims", versions_of(oracle, "claimed"))
        or differences(events_of(oracle), events, observations, oracle.events)
    )


def _different(
    story: MergedStory, oracle: Oracle, merged: Merged, table: str, expected: Rows
) -> str:
    with reading(merged.home) as connection:
        found = published(connection, table, VERSION_COLUMNS)
    return differences(expected, found, story.story.observations, oracle.events)


def _differ_as_of(
    story: MergedStory, oracle: Oracle, merged: Merged, count: int
) -> list[tuple[datetime, bool]]:
    """Return the instants at which other versions are returned, and whether claims were queried."""
    versions = oracle.versions()
    with reading(merged.home) as connection:
        return [
            (instant, claimed)
            for number, instant in enumerate(_instants(story, count))
            for claimed in ((False, True) if number % CLAIMED_EACH == 0 else (False,))
            if published_as_of(connection, instant, claimed=claimed)
            != as_of(oracle, versions, instant, claimed=claimed)
        ]


def _instants(story: MergedStory, count: int) -> list[datetime]:
    """Return instants around every observation, then random ones between first and last."""
    observations = story.story.folded()
    first, last = observations[0].observed_at, observations[-1].observed_at
    moments = sorted(
        {
            observation.observed_at
            for observation in observations
            if observation.kind != "deliveries"
        }
    )
    around = [at + by for at in moments for by in (-SECOND, SECOND) if at + by >= first]
    random = Random(count)
    span = (last - first) // SECOND
    others = [first + random.randrange(span) * SECOND for _ in range(count)]
    return sorted((random.sample(around, min(count, len(around))) + others)[:count])
