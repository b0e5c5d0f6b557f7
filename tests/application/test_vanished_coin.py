"""Every door gives a coin that left the service the same answer, and keeps its events."""

import re
from pathlib import Path

import pytest

from almanac.core.errors import AlmanacError
from almanac.mcp.toolbox import Toolbox
from application.web.site import WebSite
from tests.application.mirror.filled_home import mirroring
from tests.history.stories.handmade import HandmadeHome, at, coin, event


def test_a_vanished_coin_has_no_rank_and_is_not_listed_in_any_door(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path / "home")
    tron = {"slug": "tron", "symbol": "tro", "name": "Tron"}
    story.coins("01 06:00", coin("bitcoin", rank=1), coin("tron", rank=9))
    story.listed("01 07:00", event("a", coins=[tron]))
    story.coins("02 06:00", coin("bitcoin", rank=1), coin("sui", rank=9))
    story.merge()
    now = at("03 06:00")
    ranks = {"01 08:00": [("bitcoin", 1), ("tron", 9)], "03 06:00": [("bitcoin", 1), ("sui", 9)]}
    with mirroring(story.home, tmp_path / "mirror", site=WebSite, wall=lambda: now) as (_, client):
        for when, listed in ranks.items():
            as_of = {"as_of": f"{at(when):%Y-%m-%dT%H:%M:%SZ}"}
            rows = client.get("/v2/coins", params=as_of).json()["data"]
            assert [(row["slug"], row["rank"]) for row in rows] == listed
            page = client.get("/coins", params=as_of).text
            cells = re.findall(
                r'<td class="n">(\d+)</td>\s*<th scope="row"><a href="/coin/(\w+)', page
            )
            assert [(slug, int(rank)) for rank, slug in cells] == listed
            (shown,) = client.get("/v2/events", params=as_of | {"coins": "tron"}).json()["data"]
            assert shown["coins"] == [tron]
        assert client.get("/v2/coins/tron", params=as_of).status_code == 404
        page = client.get("/coin/tron", params=as_of).text
        assert 'not listed since <time datetime="2026-03-02T06:00:00Z">' in page
        assert "First a" in page
    toolbox = Toolbox(story.home.warehouse, clock=lambda: now)
    with pytest.raises(AlmanacError, match=r"Similar: tron \(Tron\)"):
        toolbox.call("upcoming", {"coins": "tronn"})
    toolbox.close()
