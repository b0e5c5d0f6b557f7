"""The texts of events: titles by category, descriptions, impact summaries, addresses.

`{…}` slots of a title are filled from WORDS. Text is drawn with the caller's source of randomness.
Does not belong here: displayed dates (dates). Every address is in a domain reserved for
examples.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from catalog.sandbox.world.coins import ListedCoin

TITLES: dict[str, tuple[str, ...]] = {
    "exchange-listing": (
        "Listing on {exchange}",
        "{exchange} Lists {symbol}",
        "{symbol}/USDT Pair on {exchange}",
        "{exchange} Perpetual Futures",
        "Spot Listing on {exchange}",
        "{symbol}/EUR, {symbol}/BTC Pairs on {exchange}",
        "Innovation Zone Listing on {exchange}",
    ),
    "release": (
        "{product} {version} Release",
        "{product} Beta",
        "Android & iOS {product}",
        "{coin} {version}",
        "New {product}",
        "{product} Public Launch",
        "Open-Source {product}; SDK {version}",
        "{product} on {chain}",
    ),
    "mainnet": (
        "Mainnet Launch",
        "Mainnet {version}",
        "{chain} Mainnet Deployment",
        "Mainnet Beta, Phase {small}",
        "{coin} Mainnet Migration",
        'Mainnet "{codename}"',
    ),
    "testnet": (
        "Testnet {version}",
        "Incentivized Testnet",
        'Public Testnet "{codename}"',
        "Testnet Phase {small}",
        "Validator Testnet Reset",
        "{product} on Testnet",
    ),
    "hard-fork": (
        "Hard Fork",
        "{codename} Upgrade",
        'Hard Fork "{codename}"',
        "Network Upgrade at Block {block}",
        "Protocol {version} Activation",
        "Soft Fork: {version}",
    ),
    "partnership": (
        "Partnership With {partner}",
        "{partner} Integration",
        "{coin} × {partner}",
        "{partner} Pilot in {city}",
        "Joint {product} With {partner}",
        "Payments at {partner}",
    ),
    "airdrop": (
        "Airdrop",
        "{number}M {symbol} Airdrop",
        "Airdrop to {symbol} Stakers",
        "Airdrop Claim Ends",
        "Season {small} Airdrop Snapshot",
        "Genesis NFT Airdrop (Wave {small})",
    ),
    "token-unlock": (
        "{number}.{digit}M {symbol} Unlock",
        "Team Tokens Unlock: {number}%",
        "Investor Cliff Unlock",
        "Vesting Unlock, Tranche {small}",
        "{symbol} Token Unlock",
        "Ecosystem Fund Unlock",
    ),
    "token-burn": (
        "Quarterly Token Burn",
        "{number}M {symbol} Burn",
        "Token Burn #{small}",
        "Buyback & Burn",
        "Fee Burn Activation",
    ),
    "tokenomics": (
        "Tokenomics {version}",
        "{symbol} Supply Reduction",
        "Block Reward Halving",
        "Emission Cut to {small}.{digit}%",
        "Token Swap 1:{small}",
        "Buyback Program",
    ),
    "staking": (
        "Staking Launch",
        "Staking {version}",
        "+{number}% Staking Bonus",
        "Liquid Staking on {chain}",
        "Staking Rewards End",
        "Validator Onboarding, Round {small}",
    ),
    "governance": (
        "Governance Vote: {topic}",
        "DAO Vote Ends",
        "Proposal {block}: {topic}",
        "Council Election",
        "Snapshot Vote on {topic}",
    ),
    "regulation": (
        "ETF Decision Deadline",
        "Licence in {country}",
        "{symbol} ETF Filing: Final Deadline",
        "Court Hearing, {city}",
        "Licence Application ({country})",
        "Compliance Deadline in {country}",
    ),
    "conference": (
        "{city} Blockchain Week",
        "Token Forum {city}",
        "{coin} Summit in {city}",
        "DevDays {city}",
        "Chain Expo in {city}",
        "Decentralised Finance Congress, {city}",
        "Hackathon in {city}",
    ),
    "meetup": (
        "Meetup in {city}",
        "{city} Community Meetup",
        "Developers’ Evening in {city}",
        "Café {coin}, {city}",
        "Roadshow: {city}",
    ),
    "ama": (
        "AMA on Telegram",
        "AMA With {partner}",
        "Community Call #{small}",
        'AMA: "What Comes After {version}?"',
        "Live AMA on {exchange}",
        "Discord AMA; Prizes for Questions",
        "Ask the Founders",
    ),
    "contest": (
        "Trading Competition on {exchange}",
        "{number},000 {symbol} Giveaway",
        "Meme Contest Ends",
        "Bug Bounty, Round {small}",
        "Quest Campaign With {partner}",
    ),
    "rebranding": (
        "Rebranding",
        "Rebrand to {codename}",
        "New Ticker for {symbol}",
        "New Website & Logo",
        "{coin} Becomes {codename}",
    ),
    "roadmap": (
        "Roadmap {version}",
        "New Roadmap",
        "Whitepaper {version}",
        "Roadmap & Litepaper Update",
        "Vision Paper: {topic}",
    ),
    "report": (
        "Quarterly Report",
        "Transparency Report #{small}",
        "Audit Results by {partner}",
        "Proof of Reserves",
        "Ecosystem Report: {topic}",
    ),
    "delisting": (
        "Delisting From {exchange}",
        "{exchange} Removes {symbol}/BTC",
        "Withdrawals End on {exchange}",
        "Margin Delisting, {exchange}",
    ),
    "other": (
        "Announcement",
        "Major Announcement",
        "Bridge to {chain} Opens",
        "Old {product} Shutdown",
        "Charity Auction in {city}",
        "Contract Migration to {version}",
    ),
}


Draw = Callable[[], float]
"""Returns a uniform number in [0, 1)."""

_WORD_LISTS = {
    "exchange": (
        "Northgate,Kestrel Exchange,Coinharbor,Bitquay,Orca Markets,Tokenfair,Pikomex,Zebrado,"
        "Quaystone Pro,Lumex,Börse Nova,HelioX,Tradewell,Swapwise,Merino Markets"
    ),
    "product": (
        "Wallet,Mobile App,Explorer,DEX,Launchpad,Browser Extension,Staking Dashboard,Bridge,"
        "Oracle,Lending Market,NFT Marketplace,Node Client,SDK,Card,Perpetuals,Stablecoin,"
        "Data Layer,Light Client,zk Prover,Agent Hub,Points Program,Name Service"
    ),
    "chain": ("Ethereum,Solana,BNB Chain,Base,Arbitrum,Avalanche,Polygon,Cosmos,Near,Sui"),
    "partner": (
        "Oberon Labs,Halcyon Pay,Fernhill Group,Ostrava Telecom,Meridian Games,Blue Kiosk,"
        "Société Lumière,Tanaka & Sons,Ridgeline Audit,Piñata Foods,Stellwerk GmbH,Castor Mobile,"
        "Aurora Airlines,Wren & Fitch,Nordlicht Energie,Quillon Security"
    ),
    "city": (
        "Singapore,Lisbon,Zürich,São Paulo,Seoul,Dubai,Austin,Berlin,Kraków,Denver,Paris,Tokyo,"
        "Hong Kong,Istanbul,Bogotá,Lagos,Bengaluru,Toronto,Málaga,Prague,Bangkok,Cannes,Miami,"
        "Reykjavík,Buenos Aires,Taipei"
    ),
    "country": (
        "Singapore,Portugal,Switzerland,Brazil,South Korea,the UAE,the USA,Germany,Poland,France,"
        "Japan,Türkiye,Colombia,Nigeria,India,Canada,Spain,the UK"
    ),
    "codename": (
        "Aldebaran,Basalt,Cobra,Daybreak,Erebus,Firefly,Glacier,Hyperion,Ibis,Juno,Kraken’s Gate,"
        "Lovelace,Mistral,Nightjar,Orion,Pangaea,Quasar,Rosetta,Sirocco,Tesseract,Umbra,Voltaire,"
        "Wayfarer,Zephyr"
    ),
    "topic": (
        "Fee Switch,Treasury Diversification,Lower Inflation,Grants Budget,Gas Limits,Buybacks,"
        "New Oracle,Risk Parameters,Validator Set,Security Council,Liquidity Incentives"
    ),
    "version": ("v1.1,v1.2,v2,v2.0,v2.1,v3,v3.0,v3.4,v4,v4.2,v5.0,1.0,2.0,3.0,0.9,1.14.2,v0.21"),
    "number": "1,2,3,4,5,6,7,8,10,12,15,18,20,24,25,30,40,50,60,75,100",
    "small": "1,2,3,4,5,6,7,8,9",
    "digit": "0,1,2,3,4,5,6,7,8,9",
    "block": ",".join(str(240_000 + 7_919 * step) for step in range(60)),
}
WORDS = {slot: tuple(words.split(",")) for slot, words in _WORD_LISTS.items()}
"""The choices for each slot of a text."""

_LEADS = (
    "{coin} ({symbol}) announces: {title}.",
    "The team of {coin} has set a date for this on its blog.",
    "“{title}” was announced by the {coin} team during its monthly call.",
    "According to the team's post, this is planned together with {partner}.",
    '"We are nearly there," said a core developer of {coin}; "what remains is the audit."',
    "{coin} will go ahead after the review by {partner}, the team says.",
    "Details were shared with holders of {symbol}, in English, Spanish and 中文.",
    "Join the {coin} community for this one.",
)
_MIDDLES = (
    "Holders need to take no action.",
    "Deposits and withdrawals may be paused for {number} hours.",
    "Registration is open; seats are limited to {number}0.",
    "Users of {exchange} are supported, others should move their {symbol} first.",
    "The date may move, as always, with the results of testing.",
    "Prizes: {number},000 {symbol} for the first, half of that for the second.",
    "What changes:\n- lower fees\n- {product} {version}\n- support for {chain}",
    "Steps:\n1. Update to {version}\n2. Restart the node\n3. Check block {block}",
    "The snapshot is taken at block {block}; balances on {exchange} count, too.",
    "Fees fall by {number} % → see the table in the post.",
    "More in {city}, where the team will be present.",
)
_CLOSINGS = (
    "Further details to follow.",
    "Source: the team's announcement.",
    "🚀 Stay tuned!",
    "A recording will be published afterwards.",
    'Questions go to the forum, under "{topic}".',
    "Time is UTC.",
)
_SUMMARIES = (
    "Adds a venue with real volume; past listings there moved the price for a day or two.",
    "New supply reaches the market; compare it with the average daily volume.",
    "Routine; little effect on the price is expected.",
    "Long awaited, and delayed before: part of it is priced in.",
    "Changes how {symbol} is issued; the effect is slow, but lasts.",
    "Raises attention for {coin} for a short while.",
    "A binary outcome, with a date known in advance; expect volatility around it.",
    'Could widen the use of {coin}; depends on "{topic}".',
    "Affects node operators more than holders.",
    "Liquidity on {exchange} decides how large the effect will be.",
)
_BREAKS = (" ", " ", " ", "\n\n", "\n")
_SITES = ("news.example", "blog.example", "forum.example", "social.example", "press.example")
_NOT_URL_SAFE = re.compile(r"[^a-z0-9]+")


class Slots(dict[str, str]):
    """Fills the slots of one event's text: the coin, its symbol, words drawn when needed."""

    def __init__(self, r: Draw, coin: ListedCoin) -> None:
        self["coin"] = coin.name
        self["symbol"] = coin.symbol.upper()
        self.r = r

    def __missing__(self, slot: str) -> str:
        words = WORDS[slot]
        return words[int(self.r() * len(words))]


def title(r: Draw, slots: Slots, category_id: str) -> str:
    """Return a title under a category."""
    titles = TITLES[category_id]
    return titles[int(r() * len(titles))].format_map(slots)


def description(r: Draw, slots: Slots, title: str) -> str | None:
    """Return one to four sentences, often on several lines; None for one event in eight."""
    length = r()
    if length < 0.125:
        return None
    slots["title"] = title
    text = _LEADS[int(r() * len(_LEADS))]
    if length > 0.3:
        text += _BREAKS[int(r() * len(_BREAKS))] + _MIDDLES[int(r() * len(_MIDDLES))]
    if length > 0.65:
        text += _BREAKS[int(r() * len(_BREAKS))] + _CLOSINGS[int(r() * len(_CLOSINGS))]
    return text.format_map(slots)


def impact_summary(r: Draw, slots: Slots) -> str | None:
    """Return why the event may matter; None for one event in five."""
    if r() < 0.2:
        return None
    return _SUMMARIES[int(r() * len(_SUMMARIES))].format_map(slots)


def source_url(r: Draw, coin: ListedCoin) -> str | None:
    """Return the address of an announcement; None for one event in twenty."""
    if r() < 0.05:
        return None
    site = _SITES[int(r() * len(_SITES))]
    return f"https://{site}/{coin.slug}/{int(r() * 10_000_000)}"


def snapshot_url(r: Draw, event_id: str) -> str | None:
    """Return the address of a picture of the announcement; None for one event in ten."""
    return f"https://snapshots.example/{event_id}/{int(r() * 1000)}.png" if r() > 0.1 else None


def event_slug(title: str, event_id: str) -> str:
    """Return the title made URL-safe, with the first six digits of the id."""
    return f"{_url_safe(title)}-{event_id[:6]}"


@lru_cache(maxsize=8192)
def _url_safe(title: str) -> str:
    return _NOT_URL_SAFE.sub("-", title.lower()).strip("-") or "event"
