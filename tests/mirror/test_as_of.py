"""The time of knowledge of a request: its forms, its bounds, and the headers of the answer."""

from collections.abc import Iterator

import httpx
import pytest

from tests.mirror.filled_home import mirroring
from warehouse.home import Home

ROUTES = (
    *("/v2/events", "/v2/events/export", "/v2/events/cancellations", "/v2/events/changes"),
    *("/v2/coins", "/v2/categories", "/v2/usage"),
)


@pytest.fixture(scope="module")
def client(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with mirroring(filled_home, tmp_path_factory.mktemp("mirror")) as (_, client):
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["error"]["code"], answer.json()["message"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026", "2026-02", "2026-02-26T06", "2026-02-26T06:00", "20260226T060000Z"),
        *("2026-02-26 06:00:00Z", "2026-02-26T06:00:00", "2026-02-26t06:00:00z", "1772085600"),
        *("2026-02-26T06:00:00+01:00", "2026-02-26T06:00:00%2B01:00", "2026-02-30", "2026-13-01"),
        *(
            "2026-02-26T24:00:00Z",
            "2026-02-26T06:00:60Z",
            "-2026-02-26",
            "12026-02-26",
            "0000-01-01",
        ),
        *("2026-02-26T06:00:00.Z", "2026-02-26T06:00:00.1234567890Z", "%00", "2026-02-26%00"),
        *("2026-02-26T06:00:00Z'--", "%D9%A2%D9%A0%D9%A2%D9%A6-02-26", "2026-W09-4"),
    ],
)
def test_an_unreadable_time_is_a_400_that_names_the_form(client: httpx.Client, text: str) -> None:
    for path in ROUTES:
        status, code, message = refusal(client.get(f"{path}?as_of={text}"))
        assert (status, code) == (400, "invalid_request"), path
        assert message == "as_of must be YYYY-MM-DD or an RFC 3339 instant in UTC"
