"""A running mirror against its own OpenAPI document, with the rules of the sandbox's run."""

import re
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.conformance.test_schemathesis import SEED, run_schemathesis
from tests.mirror.filled_home import mirroring
from tests.server.published_store import published
from tests.server.small_catalog import DAY, NOW, TODAY, TimedStore, event, view
from warehouse.home import Home

NOT_CHECKED = ("--exclude-checks", "ignored_auth")
"""On loopback no key is needed."""


def count_statuses(client: httpx.Client) -> Counter[str]:
    """Return the number of answered requests by status class."""
    found: Counter[str] = Counter()
    counter = re.compile(r'^almanac_requests_total\{.*status="(\d)\d\d"\} (\S+)$', re.MULTILINE)
    for status, count in counter.findall(client.get("/metrics").text):
        found[f"{status}xx"] += int(float(count))
    return found


@pytest.mark.parametrize(
    ("events_in_memory", "examples", "cases"),
    [
        pytest.param(0, 1, 100, id="by SQL"),
        pytest.param(0, 65, 1_000, id="by SQL, many", marks=pytest.mark.long),
        pytest.param(1_000, 65, 1_000, id="in memory, many", marks=pytest.mark.long),
    ],
)
def test_no_case_fails_or_gets_a_5xx(
    tmp_path: Path, events_in_memory: int, examples: int, cases: int
) -> None:
    events = [event(f"e{n:03}", TODAY + n * DAY, impact=n % 11) for n in range(120)]
    cancelled = {f"c{n}": NOW - n * DAY for n in range(60)}
    with (
        published(TimedStore(view(events, cancelled=cancelled))) as store,
        mirroring(
            store.home, tmp_path / "mirror", wall=lambda: NOW, events_in_memory=events_in_memory
        ) as (mirror, client),
    ):
        run_schemathesis(
            mirror.base_url, "any key", tmp_path, *NOT_CHECKED, examples=examples, seed=SEED
        )
        statuses = count_statuses(client)
    assert statuses["5xx"] == 0
    assert statuses.total() >= cases
    # A run with errors alone would have tested nothing.
    assert statuses["2xx"] >= cases * 0.4
    assert statuses["4xx"] >= cases * 0.2


def test_an_id_with_control_characters_is_not_found(filled_home: Home, tmp_path: Path) -> None:
    with mirroring(filled_home, tmp_path) as (_, client):
        for path in ("/v2/events/", "/v2/coins/"):
            for name in ("%00", "%C2%84", "a%0A", "%7F"):
                answer = client.get(path + name)
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
