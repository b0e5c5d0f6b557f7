"""The texts of coins: one form for all doors, and no guess where one stands for several coins."""

import shutil
import string
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import almanac
from almanac.database import Database
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.almanac.test_database import NOW, at
from tests.warehouse.answers.handmade import Known

COINS = [
    NamedCoin("bitcoin", "BTC", "Bitcoin", 1),
    NamedCoin("ethereum", "ETH", "Ethereum", 2),
    # The slug of one is the ticker of another.
    NamedCoin("sand", "XSD", "Sand Protocol", 50),
    NamedCoin("the-sandbox", "SAND", "The Sandbox", 20),
    # The name of one is the slug of another; a coin whose slug, ticker and name are one text.
    NamedCoin("terra", "LUNA", "Terra", 50),
    NamedCoin("terra-classic", "LUNC", "terra", 60),
    NamedCoin("sui", "SUI", "Sui", 9),
    NamedCoin("shiba", "SHIB", "Shiba Inu", 10),
]
PADDINGS = ["\r", "\n", "\t", "\r\n", " ", "\xa0", "\u2009", "\u3000", "\u200b", "\ufeff"]
PADDINGS += ["\x00", "\u2028", "\x1f", "\x85", "\u2060", "\u00ad", "\ufe0f", "\u3164", "\u202e"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    versions = [
        Known(event_id=coin.slug, known_from=at(1), date=at(10, 12), coins=(coin.slug,))
        for coin in COINS
    ]
    path = tmp_path_factory.mktemp("coins") / "warehouse.duckdb"
    ranks = {coin.slug: coin.rank for coin in COINS}
    # Before, no coin had a rank; then `sand` had the better one.
    early = {**dict.fromkeys(ranks), "sand": 3}
    ranked = {at(1): dict.fromkeys(ranks), at(3): early, at(5): ranks}
    return publish_by_hand(path, versions, pulls=[at(1), at(8)], coins=COINS, ranked=ranked)


@pytest.fixture(scope="module")
def db(file: Path) -> Iterator[almanac.Database]:
    with almanac.open(file, clock=lambda: NOW) as opened:
        yield opened


@pytest.fixture(scope="module")
def attached(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{file}' AS warehouse (READ_ONLY)")
        connection.execute("USE warehouse")
        yield connection


def looked_up(attached: duckdb.DuckDBPyConnection, text: str | None) -> list[tuple[Any, ...]]:
    sql = "SELECT coin, matched_by, is_ambiguous FROM coin_lookup($text)"
    return attached.execute(sql, {"text": text}).fetchall()


def test_a_text_is_the_same_coin_whatever_is_around_it(
    db: almanac.Database, attached: duckdb.DuckDBPyConnection
) -> None:
    texts = [text for pad in PADDINGS for text in (f"BTC{pad}", f"{pad}btc", f"{pad}Bitcoin{pad}")]
    frame = pd.DataFrame({"ts": [at(5)] * len(texts), "coin": texts})
    for given_frame in (frame, pl.from_pandas(frame)):
        joined = db.attach_known(given_frame)
        assert list(joined["next_event_id"]) == ["bitcoin"] * len(texts)
    assert {looked_up(attached, text)[0][0] for text in texts[::3]} == {"bitcoin"}


def test_a_text_is_the_same_coin_for_every_door(db: almanac.Database) -> None:
    padding = "\xa0\u200b"
    opens = pd.DatetimeIndex([at(4), at(5)])
    for text in (f"{padding}BTC{padding}", f"BTC{padding}/USDT", f"BTCUSDT{padding}"):
        assert db.resolve(text).slug == "bitcoin"
        for found in (db.events(coins=text), db.upcoming(text)):
            assert {row["event_id"] for row in found} == {"bitcoin"}
        assert {row["coin"] for row in db.blackouts(as_of="now", coins=text, min_impact=None)} == {
            "bitcoin"
        }
        assert set(db.features(opens, "1d", [text])["next_event_id"].dropna()) == {"bitcoin"}
        audit = db.audit([{"coin": text, "date": at(10, 12), "decided_at": at(5)}])
        assert [row["verdict"] for row in audit.verdicts] == ["clean"]


@given(
    before=st.lists(st.sampled_from(PADDINGS), max_size=3).map("".join),
    after=st.lists(st.sampled_from(PADDINGS), max_size=3).map("".join),
    text=st.one_of(
        st.sampled_from([text for coin in COINS for text in coin[:3] if isinstance(text, str)]),
        st.text(string.ascii_letters + "\xa0é：İß", max_size=4),
    ),
)
def test_python_and_sql_find_the_same_coin_for_any_text(
    db: almanac.Database,
    attached: duckdb.DuckDBPyConnection,
    before: str,
    after: str,
    text: str,
) -> None:
    padded = before + text + after
    found: list[str] = []
    try:
        found = [db.resolve(padded).slug]
    except almanac.AmbiguousCoin as error:
        found = [coin.slug for coin in error.coins]
    except almanac.UnknownName as error:
        assert repr(padded) in str(error), "invisible characters are shown"
    try:
        rows = [row for row in looked_up(attached, padded) if row[1] != "prefix"]
    except duckdb.InvalidInputException:
        rows = []
    assert sorted(found) == sorted(row[0] for row in rows)
    assert all(row[2] == (len(found) > 1) for row in rows)


@pytest.mark.parametrize("text", ["nobody\u200b", ""])
def test_an_unknown_coin_is_an_error_that_shows_it(
    db: almanac.Database, attached: duckdb.DuckDBPyConnection, text: str
) -> None:
    frame = pd.DataFrame({"ts": [at(5)] * 2, "coin": ["BTC", text]})
    questions: list[Any] = [
        lambda: db.resolve(text),
        lambda: db.events(coins=["BTC", text]),
        lambda: db.upcoming(text),
        lambda: db.changes(at(2), coins=text),
        lambda: db.blackouts(as_of="now", coins=text, min_impact=None),
        lambda: db.attach_known(frame),
        lambda: db.features([at(5)], "1d", text),
    ]
    for question in questions:
        with pytest.raises(almanac.UnknownName) as error:
            question()
        assert repr(text) in str(error.value)
    for sql in ("FROM coin_lookup($text)", "SELECT 1 FROM coin_lookup($text) LIMIT 1"):
        with pytest.raises(duckdb.InvalidInputException, match="coin_lookup: no coin has"):
            attached.execute(sql, {"text": text}).fetchall()


@pytest.mark.parametrize(
    ("text", "slugs"),
    [
        (" Sand\u200b", ["the-sandbox", "sand"]),
        ("TERRA", ["terra", "terra-classic"]),
    ],
)
def test_a_text_that_names_two_coins_in_any_case_is_refused_with_both(
    db: almanac.Database, attached: duckdb.DuckDBPyConnection, text: str, slugs: list[str]
) -> None:
    frame = pd.DataFrame({"ts": [at(5)], "coin": [text]})
    questions: list[Any] = [
        lambda: db.resolve(text),
        lambda: db.events(coins=text),
        lambda: db.attach_known(frame),
        lambda: db.attach_known(frame, unknown="ignore"),
        lambda: db.features([at(5)], "1d", [text]),
        lambda: db.blackouts(as_of="now", coins=[text], min_impact=None),
    ]
    for question in questions:
        with pytest.raises(almanac.AmbiguousCoin) as error:
            question()
        assert {coin.slug for coin in error.value.coins} == set(slugs)
        assert all(f"slug:{slug}" in str(error.value) for slug in slugs)
    rows = looked_up(attached, text)
    assert {row[0] for row in rows if row[2] and row[1] != "prefix"} == set(slugs)


def test_a_text_with_commas_is_a_list(db: almanac.Database) -> None:
    two = db.events(coins=["bitcoin", "ETH"]).rows()
    assert db.events(coins="bitcoin, ETH,").rows() == two
    assert db.blackouts(as_of="now", coins="bitcoin,ETH", min_impact=None).rows()
    assert db.events(coins="ETH", status="scheduled, cancelled").rows() == two[1:]
    with pytest.raises(almanac.UnknownName):
        db.resolve("bitcoin,ETH")


def test_an_event_is_found_by_its_slug_and_by_its_id_in_any_case(
    db: almanac.Database, file: Path, tmp_path: Path
) -> None:
    assert db.history(" Bitcoin ").rows() == db.history("bitcoin").rows()
    copy = Path(shutil.copy(file, tmp_path))
    copy.chmod(0o600)
    with duckdb.connect(copy) as connection:
        connection.execute(
            "UPDATE state.current_versions SET slug = if(event_id = 'sui', 'sui-listing', 'sand')"
        )
    with almanac.open(copy, clock=lambda: NOW) as named:
        for text in ("sui-listing", "SUI-Listing"):
            assert [row["event_id"] for row in named.history(text)] == ["sui"]
        assert [row["event_id"] for row in named.history("SAND")] == ["sand"]
    with duckdb.connect(copy) as connection:
        connection.execute("UPDATE state.current_versions SET slug = 'listing'")
    several = pytest.raises(almanac.InvalidArgument, match="is the slug of 8 events: bitcoin, eth")
    with almanac.open(copy, clock=lambda: NOW) as named, several:
        named.history("listing")
    with pytest.raises(almanac.UnknownName, match="no event with the id or slug 'nobody'"):
        db.history("nobody")
    with pytest.raises(almanac.InvalidArgument, match="3 is a int; expected a text"):
        db.history(3)  # type: ignore[arg-type]


def test_changes_take_a_length_of_time(db: almanac.Database) -> None:
    week = db.changes("7d").rows()
    for age in (timedelta(days=7), pd.Timedelta(days=7), np.timedelta64(7, "D")):
        assert db.changes(age).rows() == week
    with pytest.raises(almanac.InvalidArgument, match="is not a timestamp"):
        db.changes(timedelta(days=-7))


def test_a_mark_or_a_coin_says_which_of_two_is_meant(
    db: almanac.Database, attached: duckdb.DuckDBPyConnection
) -> None:
    meant = {
        **{"slug:sand": "sand", "symbol:sand": "the-sandbox", "ticker:SAND": "the-sandbox"},
        **{"Slug: terra": "terra", "symbol:LUNC": "terra-classic"},
    }
    with pytest.raises(almanac.UnknownName):
        db.resolve("name:Terra Classic")
    for text, slug in meant.items():
        coin = db.resolve(text)
        assert coin.slug == looked_up(attached, text)[0][0] == slug
        for named in (text, coin):
            assert [row["event_id"] for row in db.events(coins=named)] == [slug]
        joined = db.attach_known(pd.DataFrame({"ts": [at(5)], "coin": [text]}))
        assert list(joined["next_event_id"]) == [slug]


def test_a_column_of_slugs_is_read_as_such_if_most_of_them_can_be_nothing_else(
    db: almanac.Database,
) -> None:
    slugs = [coin.slug for coin in COINS]
    joined = db.attach_known(pd.DataFrame({"ts": [at(5)] * len(slugs), "coin": slugs}))
    assert list(joined["next_event_id"]) == slugs
    for mixed in (["sand", "bitcoin"], ["sand", "bitcoin", "ETH", "shiba"], ["sand", "sui"]):
        with pytest.raises(almanac.AmbiguousCoin):
            db.attach_known(pd.DataFrame({"ts": [at(5)] * len(mixed), "coin": mixed}))


def test_a_column_that_is_read_in_parts_is_judged_by_all_of_its_texts(
    db: almanac.Database,
) -> None:
    """The first parts have slugs alone, among them `sand`; the last has a ticker."""
    texts = ["sand", "bitcoin", "ethereum", "shiba", "the-sandbox", "terra-classic", "ETH"]
    frame = pd.DataFrame({"ts": [at(5)] * len(texts), "coin": texts})
    with pytest.raises(almanac.AmbiguousCoin):
        db.attach_known(frame)
    table = pa.Table.from_pandas(frame)
    sliced = Database(db.reader)
    sliced._rows_max = 4
    found = sliced.attach_known(table.to_reader())
    with pytest.raises(almanac.AmbiguousCoin):
        found.read_all()


def test_the_message_says_what_to_write_for_each_coin(db: almanac.Database) -> None:
    with pytest.raises(almanac.AmbiguousCoin) as error:
        db.upcoming("sand")
    assert str(error.value) == (
        "'sand' stands for 2 coins: slug:the-sandbox (The Sandbox, rank 20), slug:sand (Sand "
        "Protocol, rank 50). Choose one, such as 'slug:the-sandbox', or take the best rank: "
        "ambiguous='largest'"
    )
    assert "coins={'sand': 'slug:the-sandbox'}" in error.value.__notes__[0]
    frame = pd.DataFrame({"ts": [at(5)], "coin": ["sand"]})
    for coin in ("sand", "the-sandbox"):
        joined = db.attach_known(frame, coins={"sand": f"slug:{coin}"})
        assert list(joined["next_event_id"]) == [coin]


def test_a_database_may_take_every_text_for_a_slug(file: Path) -> None:
    with almanac.open(file, clock=lambda: NOW, coins_are="slug") as db:
        assert "coins_are='slug'" in repr(db)
        assert db.resolve("sand").slug == "sand"
        assert db.resolve("symbol:sand").slug == "the-sandbox"
        joined = db.attach_known(pd.DataFrame({"ts": [at(5)], "coin": ["terra"]}))
        assert list(joined["next_event_id"]) == ["terra"]
        with pytest.raises(almanac.UnknownName, match="no coin has the slug 'BTC'"):
            db.resolve("BTC")
    with pytest.raises(
        almanac.InvalidArgument, match="coins_are='slugs'; expected any, slug, ticker"
    ):
        almanac.open(file, coins_are="slugs")  # type: ignore[arg-type]


def test_the_largest_coin_is_that_of_the_time_and_the_answer_names_it(file: Path) -> None:
    with almanac.open(file, clock=lambda: NOW, ambiguous="largest") as db:
        assert db.resolve("sand").slug == "the-sandbox"
        then = db.events(coins="sand", as_of=at(4))
        assert [row["event_id"] for row in then] == ["sand"]
        assert then.notes == (
            "'sand' is read as sand (Sand Protocol), rank 3, the best of 2 coins",
        )
        assert then.notes[0] in repr(then)


def test_the_largest_coin_of_each_row_is_that_of_its_time(file: Path) -> None:
    times = [at(4), at(6)]
    with almanac.open(file, clock=lambda: NOW, ambiguous="largest") as db:
        frame = pd.DataFrame({"ts": times, "coin": ["sand", "sand"]})
        joined = db.attach_known(frame)
        assert list(joined["next_event_id"]) == ["sand", "the-sandbox"]
        assert list(joined["coin_slug"]) == ["sand", "the-sandbox"]
        bars = db.features(pd.DatetimeIndex(times), "1h", "BTC, sand")
        assert list(bars["coin_slug"]) == ["bitcoin", "sand", "bitcoin", "the-sandbox"]
        with pytest.raises(almanac.AmbiguousCoin, match="no coin had a rank at 2026-03-02"):
            db.attach_known(frame.assign(ts=[at(4), at(2)]))


def test_all_ambiguous_texts_are_reported_together_with_ranks(file: Path) -> None:
    with almanac.open(file, clock=lambda: NOW) as db:
        with pytest.raises(almanac.AmbiguousCoin) as error:
            db.upcoming(["sand", "BTC", "terra"])
        named = {
            text: [coin.rank for coin in found] for text, found in error.value.candidates.items()
        }
        assert named == {"sand": [20, 50], "terra": [50, 60]}
    with almanac.open(file, clock=lambda: NOW, coins_are="ticker") as db:
        assert db.resolve("sand").slug == "the-sandbox"


def test_an_audit_takes_the_one_of_two_coins_that_had_the_event(db: almanac.Database) -> None:
    row = {"decided_at": at(5), "date": at(10, 12)}
    audit = db.audit([{**row, "event_id": "the-sandbox", "coin": "sand"}])
    assert [found["verdict"] for found in audit.verdicts] == ["clean"]
    # Each of the two had an event at this time.
    audit = db.audit([{**row, "coin": "sand"}, {**row, "coin": "slug:sand"}])
    assert [found["verdict"] for found in audit.verdicts] == ["unreadable", "clean"]
