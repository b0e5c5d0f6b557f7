"""Hostile requests to a mirror on loopback: other hosts, other origins, SQL, CRLF."""

from pathlib import Path

import pytest

from catalog.server.app import ServerOptions
from tests.mirror.filled_home import mirroring
from warehouse.home import Home

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


@pytest.mark.parametrize("events_in_memory", [0, 1_000_000], ids=["by SQL", "in memory"])
def test_no_parameter_is_read_as_sql(
    filled_home: Home, tmp_path: Path, events_in_memory: int
) -> None:
    secret = tmp_path / "other-file"
    secret.write_text("the content of another file")
    with mirroring(filled_home, tmp_path / "m", events_in_memory=events_in_memory) as (_, client):
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


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "rebound.example"}, 421), ({"origin": "https://other.example"}, 403)],
    ids=["host", "origin"],
)
def test_a_page_of_another_site_reads_nothing(
    filled_home: Home, tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    with mirroring(filled_home, tmp_path) as (_, client):
        answer = client.get("/v2/events", headers=headers)
        assert answer.status_code == status
        assert "data" not in answer.text


def test_a_page_of_an_allowed_origin_reads_and_others_do_not(
    filled_home: Home, tmp_path: Path
) -> None:
    options = ServerOptions(cors_origins=("https://app.example",))
    with mirroring(filled_home, tmp_path, options=options) as (_, client):
        sent = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}
        answer = client.get("/v2/events", headers=sent)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        for origin in ("https://app.example.evil", "http://app.example", "null"):
            refused = client.get("/v2/events", headers={"origin": origin})
            assert refused.status_code == 403, origin
        host = {"origin": "https://app.example", "host": "rebound.example"}
        assert client.get("/v2/events", headers=host).status_code == 421
