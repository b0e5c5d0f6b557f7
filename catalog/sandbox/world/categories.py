"""The closed list of editorial categories of the synthetic catalog."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EditorialCategory:
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
    EditorialCategory("exchange-listing", "Exchange Listing", 16, (1, 21), 0.08, 52),
    EditorialCategory("release", "Release", 14, (5, 260), 0.52, 46),
    EditorialCategory("mainnet", "Mainnet", 5, (20, 420), 0.6, 72),
    EditorialCategory("testnet", "Testnet", 5, (5, 200), 0.5, 44),
    EditorialCategory("hard-fork", "Hard Fork", 4, (14, 300), 0.28, 66),
    EditorialCategory("partnership", "Partnership", 7, (1, 90), 0.35, 41),
    EditorialCategory("airdrop", "Airdrop", 7, (2, 120), 0.3, 50),
    EditorialCategory("token-unlock", "Token Unlock", 8, (10, 480), 0.03, 55),
    EditorialCategory("token-burn", "Token Burn", 4, (3, 100), 0.3, 48),
    EditorialCategory("tokenomics", "Tokenomics", 4, (5, 180), 0.42, 51),
    EditorialCategory("staking", "Staking", 4, (3, 150), 0.4, 43),
    EditorialCategory("governance", "Governance Vote", 5, (1, 45), 0.12, 38),
    EditorialCategory("regulation", "Regulation", 3, (10, 500), 0.35, 68),
    EditorialCategory("conference", "Conference", 8, (10, 400), 0.02, 27),
    EditorialCategory("meetup", "Meetup", 4, (2, 70), 0.02, 18),
    EditorialCategory("ama", "AMA", 8, (1, 18), 0.01, 16),
    EditorialCategory("contest", "Contest", 3, (1, 40), 0.05, 17),
    EditorialCategory("rebranding", "Rebranding", 3, (7, 180), 0.45, 47),
    EditorialCategory("roadmap", "Roadmap Update", 4, (5, 240), 0.62, 34),
    EditorialCategory("report", "Report", 3, (3, 95), 0.2, 24),
    EditorialCategory("delisting", "Delisting", 2, (3, 45), 0.04, 63),
    EditorialCategory("other", "Other", 3, (2, 200), 0.35, 30),
)

WEIGHTED = tuple(category for category in CATEGORIES for _ in range(category.weight))
"""Each category as often as its weight: a uniform pick from here is a weighted pick."""
