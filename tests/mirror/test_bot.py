"""The strategy of `examples/bot` decides the same on a mirror, on a replay, and on a home."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import almanac
from pipeline.mirror.replay_server import CONTROL_PATH
from tests.hangs import HANGS_AFTER_S
from tests.mirror.filled_home import STARTS, mirroring
from tests.mirror.replays import order, replaying
from warehouse.home import Home

BOT = Path(__file__).parents[2] / "examples" / "bot"
LEAST_IMPACT = 5.0
"""Lower than the default: the home is small."""


@pytest.fixture(scope="module")
def sources() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BOT))
    try:
        import sources

        yield sources
    finally:
        sys.path.remove(str(BOT))


@pytest.fixture(scope="module")
def coins(filled_home: Home) -> frozenset[str]:
    """Return the coins with most changes, so that there is something to decide."""
    counts = Counter(
        coin
        for change in almanac.replay(filled_home.root, STARTS)
        for coin in change.event["coins"] or ()
    )
    return frozenset(coin for coin, _ in counts.most_common(40))


def strategy(sources: ModuleType, coins: frozenset[str]) -> object:
    return sources.StepAside(coins, least_impact=LEAST_IMPACT)


def test_mirror_replay_and_home_lead_to_the_same_decisions(
    sources: ModuleType, coins: frozenset[str], filled_home: Home, tmp_path: Path
) -> None:
    recorded = list(sources.recorded(filled_home.root, strategy(sources, coins), STARTS))
    assert {decision.action for decision in recorded} == {"leave", "return"}

    with mirroring(filled_home, tmp_path / "mirror") as (_, client):
        followed = list(
            sources.follow(client, strategy(sources, coins), STARTS, is_over=lambda: True)
        )
    assert followed == recorded

    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):

        def is_over() -> bool:
            return bool(client.get(CONTROL_PATH).json()["ended"])

        def step(seconds: float) -> None:
            order(client, advance_s=6 * 3600)

        replayed = list(
            sources.follow(client, strategy(sources, coins), STARTS, is_over=is_over, sleep=step)
        )
    assert replayed == recorded


class Enough(Exception):
    """Ends a bot that polls without end."""


def test_a_bot_that_polls_a_replay_decides_at_its_polls(
    sources: ModuleType, coins: frozenset[str], filled_home: Home, tmp_path: Path
) -> None:
    recorded = list(sources.recorded(filled_home.root, strategy(sources, coins), STARTS))
    decisions = []
    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):

        def step(seconds: float) -> None:
            if order(client, advance_s=seconds)["ended"]:
                raise Enough

        polling = sources.poll(client, strategy(sources, coins), every_s=1800, sleep=step)
        with pytest.raises(Enough):
            for decision in polling:
                decisions.append(decision)
    assert any(decision.because != "the catalog" for decision in decisions)
    polled, learned = ({d.coin: d.action for d in made} for made in (decisions, recorded))
    assert polled.keys() == learned.keys()
    # A past event leaves the list, so a bot that polls returns to its coin; no change says so.
    differing = {coin for coin, action in polled.items() if action != learned[coin]}
    assert {polled[coin] for coin in differing} <= {"return"}
    assert len(differing) < len(polled) / 2


def test_the_program_prints_decisions_and_never_the_key(
    filled_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    key = "canary-7f3a91"
    ran = subprocess.run(
        [
            *(sys.executable, str(BOT / "run.py"), "recorded", str(filled_home.root)),
            *("--coins", "bitcoin", "--since", STARTS.isoformat()),
        ],
        env={"ALMANAC_API_KEY": key, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=True,
    )
    assert key not in ran.stdout + ran.stderr
