"""A running mirror against its own OpenAPI document, and against SQL in its parameters."""

import re
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.application.mirror.filled_home import mirroring
from tests.conformance.test_schemathesis import SEED, run_schemathesis
from warehouse.home import Home

NOT_CHECKED = ("--exclude-checks", "ignored_auth")
"""On loopback no key is needed."""
ATTACKS = (
    "'); ATTACH '{file}' AS other; SELECT ('",
    "' OR 1=1 --",
    "x' UNION SELECT content FROM read_text('{file}') --",
    "a\r\nX-Injected: 1",
    "\x00",
    "%' OR true OR '%",
)
PARAMETERS = (
    *("keyword", "coins", "categories", "from", "to", "impactMin", "sortBy", "limit", "cursor"),
    "as_of",
)
FILTERS = ("keyword", "coins", "categories")


def count_statuses(client: httpx.Client) -> Counter[str]:
    """Return the number of answered requests by status class."""
    found: Counter[str] = Counter()
    counter = re.compile(r'^almanac_requests_total\{.*status="(\d)\d\d"\} (\S+)$', re.MULTILINE)
    for status, count in counter.findall(client.get("/metrics").text):
        found[f"{status}xx"] += int(float(count))
    return found


@pytest.mark.parametrize(
    ("examples", "cases"),
    [
        pytest.param(1, 100, id="some"),
        pytest.param(65, 1_000, id="many", marks=pytest.mark.long),
    ],
)
def test_no_case_fails_or_gets_a_5xx(
    filled_home: Home, tmp_path: Path, examples: int, cases: int
) -> None:
    with mirroring(filled_home, tmp_path / "mirror") as (mirror, client):
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


def test_no_parameter_is_read_as_sql(filled_home: Home, tmp_path: Path) -> None:
    secret = tmp_path / "other-file"
    secret.write_text("the content of another file")
    with mirroring(filled_home, tmp_path / "m") as (_, client):
        before = client.get("/v2/events").json()
        for attack in ATTACKS:
            text = attack.format(file=secret)
            for path in ("/v2/events", "/v2/events/export"):
                for name in PARAMETERS:
                    answer = client.get(path, params={name: text})
                    assert answer.status_code in (200, 400), (path, name, text)
                    assert "x-injected" not in answer.headers
                    assert secret.read_text() not in answer.text
                    if answer.status_code == 200 and path == "/v2/events" and name in FILTERS:
                        assert answer.json()["data"] == [], (name, text)
        assert client.get("/v2/events").json() == before
