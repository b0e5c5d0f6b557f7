"""The published history equals the sandbox's truth, as far as the observations showed it.

The oracle is plain Python over the truth; where it differs from the warehouse, one of the two
has misread the design. Check both against the design; never change one to match the other.
"""

import ast
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
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
from tests.history.model.versions import KINDS, Version
from tests.history.stories.disk import without_syncs
from tests.history.stories.merged_story import (
    Merged,
    MergedStory,
    after_midnight,
    joined,
    merged_in,
    reading,
)
from tests.history.stories.scenario import QUICK

OFTEN = 20
INSTANTS, INSTANTS_AT_LARGE = 60, 1_000
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
    *("cancelled before withdrawn", "twice absent, not covered far enough back"),
    *("withdrawn by 404", "withdrawn by exports"),
)


@pytest.fixture(scope="module")
def oracle(story: MergedStory) -> Oracle:
    return story.oracle()


@pytest.fixture(scope="module")
def merged(story: MergedStory, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """The story merged a day or two at a time as it was landed, with late deliveries."""
    days = (2, 1, 1) if story.story.setting == QUICK else (1,)
    parts = joined(after_midnight(story.story.batches), days)
    with without_syncs():
        return merged_in(story, tmp_path_factory.mktemp("merged") / "home", parts)


class TestStory:
    """What the tests below need: a story without these would prove little."""

    @pytest.mark.parametrize("name", OF_THE_ORACLE)
    def test_the_oracle_imports_nothing_of_ours_but_the_sandbox(self, name: str) -> None:
        tree = ast.parse((Path(__file__).parent / "model" / f"{name}.py").read_text())
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        modules |= {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        own = {f"tests.history.model.{module}" for module in OF_THE_ORACLE}
        strange = {
            module
            for module in modules - own
            if module.partition(".")[0] not in sys.stdlib_module_names
            and not module.startswith("catalog.sandbox.")
        }
        assert strange == set()

    def test_every_kind_of_change_is_seen_often(self, oracle: Oracle) -> None:
        observed = [version for version in oracle.versions() if version.basis == "observed"]
        seen = Counter(kind for version in observed for kind in version.kinds)
        assert {kind: seen[kind] for kind in KINDS if seen[kind] < OFTEN} == {}
        later = Counter(
            kind for version in observed if version.version > 1 for kind in version.kinds
        )
        assert later["revealed"] >= OFTEN

    def test_several_changes_happen_between_two_observations(
        self, story: MergedStory, oracle: Oracle
    ) -> None:
        assert sum(_changes_since(story, version) > 1 for version in oracle.versions()) >= OFTEN
        assert (
            sum(len(version.kinds) > 1 for version in oracle.versions() if version.version > 1)
            >= OFTEN
        )

    def test_every_hard_case_occurs(self, oracle: Oracle) -> None:
        assert [
            circumstance for circumstance in CIRCUMSTANCES if not oracle.tally[circumstance]
        ] == []

    def test_observations_have_the_content_time_of_their_batches(self, story: MergedStory) -> None:
        content_at = {batch.batch_id: batch.content_at for batch in story.story.batches}
        lists = [
            observation
            for observation in story.story.observations
            if observation.kind != "deliveries"
        ]
        assert {
            observation.batch_id: observation.content_at for observation in lists
        }.items() <= content_at.items()


class TestMergedDayByDay:
    def test_events_equal_the_truth_after_every_merge(
        self, story: MergedStory, merged: Merged
    ) -> None:
        assert len(merged.moments) >= 8
        _fail_if_different(_first_difference(story, merged))

    def test_versions_equal_the_truth(
        self, story: MergedStory, oracle: Oracle, merged: Merged
    ) -> None:
        _fail_if_different(_different_versions(story, oracle, merged))

    def test_claims_equal_what_the_truth_says_of_the_time_before(
        self, story: MergedStory, oracle: Oracle, merged: Merged
    ) -> None:
        expected = versions_of(oracle, "claimed")
        assert min(version for _, version in expected) < 0
        assert {row["status"] for row in expected.values()} == {"scheduled", "cancelled"}
        _fail_if_different(_different(story, oracle, merged, "event_claims", expected))

    def test_changes_of_missing_since_equal_those_of_the_truth(
        self, oracle: Oracle, merged: Merged
    ) -> None:
        expected = absences_of(oracle)
        assert len(expected) >= OFTEN
        with reading(merged.home) as connection:
            rows = connection.sql("SELECT event_id, changed_at, missing_since FROM event_absences")
            assert set(rows.fetchall()) == expected

    def test_events_as_of_any_instant_equal_the_truth(
        self, story: MergedStory, oracle: Oracle, merged: Merged
    ) -> None:
        assert _differ_as_of(story, oracle, merged, INSTANTS) == []

    def test_a_query_before_the_first_observation_is_an_error(
        self, story: MergedStory, oracle: Oracle, merged: Merged
    ) -> None:
        before = min(observation.observed_at for observation in story.story.observations) - SECOND
        with reading(merged.home) as connection:
            with pytest.raises(duckdb.Error, match="before the first observation"):
                published_as_of(connection, before, claimed=False)
            for days in (0, 1, 30, 365):
                instant = before - timedelta(days)
                known = as_of(oracle, oracle.versions(), instant, claimed=True)
                assert published_as_of(connection, instant, claimed=True) == known


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_larger_world_merged_by_few_batches_equals_the_truth_at_a_thousand_instants(
    large_story: MergedStory, tmp_path: Path
) -> None:
    story, oracle = large_story, large_story.oracle()
    ids = [batch.batch_id for batch in story.story.batches]
    merged = merged_in(story, tmp_path / "home", (ids[at : at + 4] for at in range(0, len(ids), 4)))
    assert len(merged.moments) >= 20
    _fail_if_different(_first_difference(story, merged))
    _fail_if_different(_different_versions(story, oracle, merged))
    assert _differ_as_of(story, oracle, merged, INSTANTS_AT_LARGE) == []


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


def _changes_since(story: MergedStory, version: Version) -> int:
    """Return the number of changes between the previous version of an event and a version."""
    if version.after is None:
        return 0
    until = version.content_at
    history = story.showing.world.history(version.event_id, until)
    return sum(version.after < other.known_from <= until for other in history)
