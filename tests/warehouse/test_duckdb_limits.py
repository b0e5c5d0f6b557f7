"""DuckDB uses what the machine or the container allows, unless the settings say otherwise."""

import os
from pathlib import Path

import pytest

from pipeline.home_location import locate_home
from tests.pipeline.homes_in_days import settings_of
from warehouse.duckdb_limits import USUAL_LIMITS, cores, memory_bytes

MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MACHINE_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
MIB = 1 << 20


def root_with(folder: Path, own: str, files: dict[str, str]) -> Path:
    """Return a root folder with the cgroup of this process and the files of cgroups."""
    for name, text in {"proc/self/cgroup": own, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


GROUP = "sys/fs/cgroup"


def test_memory_is_that_of_the_container_if_it_has_less(tmp_path: Path) -> None:
    half, quarter = 512 * MIB, 256 * MIB
    for number, (own, files, expected) in enumerate(
        (
            ("", {}, MACHINE_BYTES),
            ("0::/", {f"{GROUP}/memory.max": "max"}, MACHINE_BYTES),
            ("0::/", {f"{GROUP}/memory.max": f"{half}"}, half),
            # A limit above the own group.
            (
                "0::/pods/one",
                {
                    f"{GROUP}/pods/memory.max": f"{quarter}",
                    f"{GROUP}/pods/one/memory.max": f"{half}",
                },
                quarter,
            ),
            # The path is that of the host.
            ("0::/of/the/host", {f"{GROUP}/memory.max": f"{half}"}, half),
        )
    ):
        assert memory_bytes(root_with(tmp_path / str(number), own, files)) == expected, own


def test_cores_are_those_of_the_container_if_it_has_fewer(tmp_path: Path) -> None:
    for text, expected in (
        ("max 100000", MACHINE_CORES),
        ("50000 100000", 1),
        ("damaged", MACHINE_CORES),
    ):
        root = root_with(tmp_path / text, "0::/", {f"{GROUP}/cpu.max": text})
        assert cores(root) == expected, text


def test_duckdb_takes_a_part_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import settings as module

    settings = settings_of(tmp_path)
    for there, expected in ((1000 * MIB, 400 * MIB), (MIB, 200_000_000), (1 << 40, 1_300_000_000)):
        monkeypatch.setattr(module, "memory_bytes", lambda there=there: there)
        assert settings.duckdb_limits.memory_bytes == expected
    assert USUAL_LIMITS.memory_bytes == 1_300_000_000


def test_the_settings_decide_and_reach_the_connection(tmp_path: Path) -> None:
    home = locate_home(settings_of(tmp_path, duckdb_memory="300MiB"))
    with home.connect() as connection:
        (row,) = connection.execute(
            "SELECT current_setting('memory_limit'), current_setting('threads')"
        ).fetchall()
    assert row == ("300.0 MiB", cores())
