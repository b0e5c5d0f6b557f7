"""`almanac doctor` on the mirror of a home."""

from pathlib import Path

import pytest

from pipeline.health.mirror import check_mirror
from pipeline.mirror.mirror import Mirror
from tests.free_ports import free_port
from tests.hangs import wait_for
from tests.mirror.test_following import health, publish, serving
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    publish(home, 0)
    return home


@pytest.fixture
def folder(home: Home) -> Path:
    """The folder of a mirror that served the home."""
    with serving(home) as (_, client):
        wait_for(lambda: bool(health(client)["changesRecorded"]))
    return home.state / "mirror"


def found(home: Home, folder: Path, port: int) -> dict[str, tuple[bool, str]]:
    return {check.what: (check.holds, check.found) for check in check_mirror(home, folder, port)}


def test_a_mirror_that_does_not_run_is_sound(home: Home, folder: Path) -> None:
    assert found(home, folder, free_port()) == {
        "mirror changes": (True, "recorded up to the last publication"),
        "mirror": (True, "does not run"),
    }


def test_a_feed_behind_the_publication_is_recorded_at_the_next_start(
    home: Home, folder: Path
) -> None:
    publish(home, 1)
    holds, text = found(home, folder, free_port())["mirror changes"]
    assert holds
    assert text.endswith("the next `almanac serve` records the rest")


def test_a_mirror_that_runs_says_what_it_serves(home: Home, folder: Path) -> None:
    with serving(home, port=(port := free_port())) as (_, client):
        served = health(client)["publishedAt"]
        holds, text = found(home, folder, port)["mirror"]
        assert (holds, text) == (True, f"runs, and serves the publication of {served}")
        assert "but not at" in found(home, folder, free_port())["mirror"][1]
        home.warehouse.unlink()
        wait_for(lambda: health(client)["trouble"] is not None)
        holds, text = found(home, folder, port)["mirror"]
        assert not holds
        assert "there is no warehouse" in text


def test_a_damaged_feed_and_open_secrets_are_problems(home: Home, folder: Path) -> None:
    (folder / "changes.sqlite").write_bytes(b"no feed" * 1_000)
    (folder / "cursor.key").chmod(0o644)
    checks = found(home, folder, free_port())
    assert not checks["mirror changes"][0]
    assert "Move it away" in checks["mirror changes"][1]
    assert checks["mirror files"] == (
        False,
        f"others can read cursor.key in {folder}: almanac doctor --fix",
    )


def test_a_port_that_another_program_uses_is_named(
    home: Home, folder: Path, tmp_path: Path
) -> None:
    port = free_port()
    with Mirror(home.warehouse, state_dir=tmp_path / "other", port=port):
        _, text = found(home, folder, port)["mirror"]
    assert text == f"does not run, and another program uses port {port}: give --port"
