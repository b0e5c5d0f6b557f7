"""The address of the database: its parts, and that no text shows the password."""

import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.free_ports import free_port
from tests.warehouse.landed_days import land
from warehouse.errors import DatabaseRefused, DatabaseUnavailable
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.shared.database import SharedDatabase

PASSWORD = "canary/5F@1c:+9e%7b"


def unreachable() -> SharedDatabase:
    return SharedDatabase(
        f"postgresql://writer:{quote(PASSWORD, safe='')}@127.0.0.1:{free_port()}/lake"
    )


def test_an_unreachable_database_is_named_without_the_password() -> None:
    database = unreachable()
    with pytest.raises(DatabaseUnavailable) as caught:
        database.connect()
    text = str(caught.value)
    assert f"the database {database.place} (ALMANAC_POSTGRES) can't be used" in text
    assert database.place.startswith("127.0.0.1:") and database.place.endswith("/lake")
    assert "refused" in text and "\n" not in text
    assert caught.value.__cause__ is None
    for shown in (text, repr(database), repr(Home(Path(), database=database)), database.place):
        assert "canary" not in shown and "5F" not in shown


@pytest.mark.parametrize(
    "password", ["canary/5F", "12/canary", "canary@5F/7b", "canary 5F", "canary%5F%zz", "a/b@c/d"]
)
def test_a_password_that_is_not_escaped_is_never_shown(password: str) -> None:
    database = SharedDatabase(f"postgresql://writer:{password}@127.0.0.1:1/lake")
    with pytest.raises((DatabaseRefused, DatabaseUnavailable)) as caught:
        database.connect()
    assert "canary" not in str(caught.value) and "5F" not in str(caught.value)


def test_the_address_of_the_catalog_keeps_every_part() -> None:
    given = f"postgresql://writer:{quote(PASSWORD, safe='')}@db:5433/lake?sslmode=require"
    uri = urlsplit(SharedDatabase(given).catalog_uri("-c almanac.epoch=7"))
    assert uri.username == "writer" and "sslmode=require" in uri.query
    from sqlalchemy import make_url

    url = make_url(uri.geturl())
    assert (url.password, url.database) == (PASSWORD, "lake")
    assert {"host": "db", "port": "5433"}.items() <= dict(url.query).items()
    assert url.query["options"] == "-c almanac.epoch=7"


def test_a_merge_without_its_database_does_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path, database=unreachable())
    land(home, 0)
    with pytest.raises(DatabaseUnavailable, match="Nothing was changed there"):
        merge(home)
    assert not home.warehouse.exists()
    assert home.landing.pending() and not (tmp_path / "lake").exists()
    merge(Home(tmp_path))
    assert home.warehouse.exists()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseRefused, match=r"pip install 'crypto-almanac\[lake\]'"):
        unreachable().connect()
