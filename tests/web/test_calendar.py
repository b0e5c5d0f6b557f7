"""The calendar over HTTP: answers, conditional requests, keys, tokens, and the page."""

from collections.abc import Iterator

import httpx
import icalendar
import pytest

from pipeline.web.site import WebSite
from tests.mirror.filled_home import mirroring
from warehouse.home import Home


@pytest.fixture(scope="module")
def client(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("mirror")
    with mirroring(filled_home, folder, site=WebSite) as (_, client):
        yield client


def test_feed_is_a_calendar_that_a_client_can_keep(client: httpx.Client) -> None:
    answer = client.get("/calendar.ics")
    assert (answer.status_code, answer.headers["content-type"]) == (
        *(200, "text/calendar; charset=utf-8"),
    )
    assert "no-cache" in answer.headers["cache-control"]
    assert icalendar.Calendar.from_ical(answer.content).walk("VEVENT")
    for condition in (
        {"if-none-match": answer.headers["etag"]},
        {"if-none-match": f'"other", W/{answer.headers["etag"]}'},
        {"if-modified-since": answer.headers["last-modified"]},
    ):
        again = client.get("/calendar.ics", headers=condition)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]
    other = {"if-none-match": '"other"', "if-modified-since": answer.headers["last-modified"]}
    assert client.get("/calendar.ics", headers=other).status_code == 200
    assert client.head("/calendar.ics").status_code == 200
    assert (
        client.get("/calendar.ics", headers={"accept-encoding": "gzip"}).headers["content-encoding"]
        == "gzip"
    )
