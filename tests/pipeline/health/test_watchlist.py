"""The watched coins, as the service knows them: one request for each that no list has."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from application.service_check import LOOK_UPS_MAX, describe_coins, look_up_coins
from catalog.sandbox.sandbox import Sandbox
from resources.errors import AccessDenied
from resources.http.client import CatalogClient
from tests.application.cli.test_plain_errors import checks
from tests.pipeline.conftest import Almanac
from tests.resources.fakes import mocked, paginated
from tests.unlimited import Unlimited


@pytest.fixture(scope="module")
def slugs(almanac_sandbox: Sandbox) -> dict[str, str]:
    """A slug of each kind: in the top 100, after it, and not tracked."""
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with CatalogClient(almanac_sandbox.base_url, key, limiter=Unlimited()) as client:
        pages = [json.loads(page.body)["data"] for page in paginated(client, feed="coins")]
    found = [coin for page in pages for coin in page]
    ranked = [coin for coin in found if coin["tracked"] and coin["rank"]]
    return {
        "top": ranked[0]["slug"],
        "later": next(coin["slug"] for coin in ranked if coin["rank"] > 150),
        "untracked": next(coin["slug"] for coin in found if not coin["tracked"]),
    }


@pytest.fixture
def free(almanac_sandbox: Sandbox) -> Iterator[CatalogClient]:
    key = almanac_sandbox.new_key("free")
    with CatalogClient(almanac_sandbox.base_url, key, limiter=Unlimited()) as client:
        yield client


def test_a_coin_outside_the_plan_is_told_from_a_slug_that_no_coin_has(
    free: CatalogClient, slugs: dict[str, str], tmp_path: Path
) -> None:
    asked = (slugs["top"], slugs["later"], "no-such-coin")
    watched = look_up_coins(asked, free, tmp_path / "none.duckdb")
    assert list(watched) == ["found", "not_covered", "unknown"]
    assert list(watched.values()) == [[slug] for slug in asked]
    text = describe_coins(watched, "free")
    assert "no coin has the slug no-such-coin" in text
    assert f"the plan free does not cover {slugs['later']}" in text


def test_at_most_twenty_coins_are_looked_up(tmp_path: Path) -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        return httpx.Response(200, json={"data": {"slug": "x", "name": "X", "tracked": True}})

    names = [f"coin/{number}" for number in range(LOOK_UPS_MAX + 2)]
    watched = look_up_coins(names, mocked(answer), tmp_path / "none.duckdb")
    assert watched == {"found": names[:LOOK_UPS_MAX], "not_asked": names[LOOK_UPS_MAX:]}
    assert len(sent) == LOOK_UPS_MAX


def test_a_refused_key_is_no_answer_about_a_coin(tmp_path: Path) -> None:
    client = mocked(lambda _: httpx.Response(403, json={"message": "Forbidden"}))
    with pytest.raises(AccessDenied):
        client.coin("bitcoin")


def test_doctor_checks_the_watchlist(
    almanac: Almanac, almanac_sandbox: Sandbox, slugs: dict[str, str]
) -> None:
    key = almanac_sandbox.new_key("elite")
    given = {"base_url": almanac_sandbox.base_url, "api_key": key}
    found = checks(almanac, code=0, **given, coins=f"{slugs['top']},{slugs['untracked']}")
    assert found["watchlist"]["holds"]
    assert found["watchlist"]["is_caution"]
    assert f"{slugs['untracked']} are not tracked" in found["watchlist"]["found"]
    found = checks(almanac, code=1, **given, coins=f"{slugs['top']},btc-misspelt")
    assert not found["watchlist"]["holds"]
    assert "no coin has the slug btc-misspelt: correct ALMANAC_COINS" in found["watchlist"]["found"]
