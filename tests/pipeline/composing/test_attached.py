"""The published file attached beside tables of a company, as docs/querying.md has it."""

import re
from pathlib import Path

import duckdb
import pytest

from almanac.database import open_database
from tests.almanac.frameworks.stories import publish_moved

PAGE = Path(__file__).parents[3] / "docs/querying.md"
BLOCKS = [block for block in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.S)]
(ATTACHED,) = [block for block in BLOCKS if "search_path" in block]
(PLAIN,) = [block for block in BLOCKS if "FROM almanac.event_versions" in block]
THE_DAY = "2026-03-02"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_moved(tmp_path_factory.mktemp("home") / "warehouse.duckdb")


@pytest.mark.parametrize("day", ["2026-05-21", "2026-05-24"])
def test_the_macro_and_the_plain_form_show_what_the_package_shows(file: Path, day: str) -> None:
    with open_database(file) as db:
        known = db.sql("SELECT event_id, displayed_date FROM events_as_of($day)", day=day)
        shown = [tuple(row.values()) for row in known]
    assert shown
    with duckdb.connect() as connection:
        # A table of the company has the name of one that the macro reads.
        connection.execute("CREATE TABLE event_versions AS SELECT 1 AS mine")
        connection.execute(
            ATTACHED.replace("data/warehouse.duckdb", str(file)).replace(THE_DAY, day)
        )
        made = "SELECT event_id, displayed_date FROM memory.main.then_known"
        assert connection.execute(made).fetchall() == shown
        plain = PLAIN.replace(THE_DAY, day).replace("FROM", "SELECT event_id, displayed_date FROM")
        assert connection.execute(plain).fetchall() == shown


def test_without_the_path_views_work_and_the_macro_says_what_it_did_not_find(file: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{file}' AS almanac (READ_ONLY)")
        connection.execute("SELECT count(*) FROM almanac.reschedules").fetchall()
        with pytest.raises(duckdb.CatalogException, match="versions_as_of"):
            connection.execute("FROM almanac.events_as_of('2026-05-21')")
