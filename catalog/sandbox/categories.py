"""The closed list of editorial categories: names, weights, how far ahead they are known.

Belongs here: facts about categories. Does not: the titles written under them (phrases.py).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Category:
    """One category. `weight` is relative; `lead_days`: how far ahead it is announced."""

    id: str
    name: str
    weight: int
    lead_days: tuple[int, int]
    estimated: float
    """Share of events announced with an estimated date."""
    impact: int
    """Typical impact, in tenths."""


CATEGORIES = (
    Category("exchange-listing", "Exchange Listing", 16, (1, 21), 0.08, 52),
    Category("release", "Release", 14, (5, 260), 0.52, 46),
    Category("mainnet", "Mainnet", 5, (20, 420), 0.6, 72),
    Category("testnet", "Testnet", 5, (5, 200), 0.5, 44),
    Category("hard-fork", "Hard Fork", 4, (14, 300), 0.28, 66),
    Category("partnership", "Partnership", 7, (1, 90), 0.35, 41),
    Category("airdrop", "Airdrop", 7, (2, 120), 0.3, 50),
    Category("token-unlock", "Token Unlock", 8, (10, 480), 0.03, 55),
    Category("token-burn", "Token Burn", 4, (3, 100), 0.3, 48),
    Category("tokenomics", "Tokenomics", 4, (5, 180), 0.42, 51),
    Category("staking", "Staking", 4, (3, 150), 0.4, 43),
    Category("governance", "Governance Vote", 5, (1, 45), 0.12, 38),
    Category("regulation", "Regulation", 3, (10, 500), 0.35, 68),
    Category("conference", "Conference", 8, (10, 400), 0.02, 27),
    Category("meetup", "Meetup", 4, (2, 70), 0.02, 18),
    Category("ama", "AMA", 8, (1, 18), 0.01, 16),
    Category("contest", "Contest", 3, (1, 40), 0.05, 17),
    Category("rebranding", "Rebranding", 3, (7, 180), 0.45, 47),
    Category("roadmap", "Roadmap Update", 4, (5, 240), 0.62, 34),
    Category("report", "Report", 3, (3, 95), 0.2, 24),
    Category("delisting", "Delisting", 2, (3, 45), 0.04, 63),
    Category("other", "Other", 3, (2, 200), 0.35, 30),
)

WEIGHTED = tuple(category for category in CATEGORIES for _ in range(category.weight))
"""Each category as often as it weighs: an even pick from here is a weighted pick."""
