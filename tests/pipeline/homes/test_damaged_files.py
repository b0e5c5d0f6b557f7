"""Commands over a home with a damaged file: an answer or one line, never a traceback."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almanac.command_line import app
from tests.in_process import own_process
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes.conftest import CopyTo
from tests.pipeline.small_home import SmallHome
from warehouse.history.merge import merge

COMMANDS = (
    *(("status",), ("budget",), ("batches", "list"), ("sql", "FROM events"), ("merge",)),
    ("verify",),
)
HARMS: tuple[Callable[[bytes], bytes | None], ...] = (
    lambda held: held[: len(held) // 2],
    lambda _: b"\xff\x00garbage",
    lambda _: None,  # a folder in its place
)


@pytest.mark.parametrize(
    "name",
    [
        "warehouse.duckdb",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in (
                *("checkpoints", "landing/batches", "state/requests"),
                *("parquet/event_changes", "parquet/events", "parquet/partitions.json"),
                *("landing/bodies", "landing/pending", "landing/released", "state/merge.lock"),
            )
        ),
    ],
)
def test_no_command_ends_in_a_traceback_over_a_damaged_file(
    name: str, every_kind: CopyTo, almanac: Almanac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "home"
    monkeypatch.setenv("ALMANAC_HOME", str(root))
    for harm in HARMS:
        every_kind(root)
        path = root / name
        path = path if path.is_file() else min(file for file in path.rglob("*") if file.is_file())
        data = harm(path.read_bytes())
        path.unlink()
        path.mkdir() if data is None else path.write_bytes(data)
        for words in COMMANDS:
            with own_process():
                done = CliRunner().invoke(app, list(words))
            assert isinstance(done.exception, SystemExit | None), (words, data)
            assert done.exit_code in (0, 1), done.output
        almanac("replay", code=int("landing/ba" in name or "landing/bo" in name))
        shutil.rmtree(root)


def test_status_shows_the_rest_where_a_batch_that_waits_is_damaged(
    almanac: Almanac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallHome(tmp_path / "home")
    small.land("coins")
    merge(small.home)
    (waiting,) = small.land("categories")
    (path,) = small.home.landing.storage.path("batches").rglob(f"{waiting.batch_id}.json")
    path.write_bytes(path.read_bytes()[:-9])
    monkeypatch.setenv("ALMANAC_HOME", str(small.home.root))
    for when in ("before", "after"):
        output = " ".join(almanac("status").output.split())
        assert "Batches to merge" in output
        assert f"{waiting.batch_id}: almanac batches list" in output
        almanac("batches", "list")
        almanac("merge", code=int(when == "before"))
