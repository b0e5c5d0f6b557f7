"""What the UI and the daemon load: the home's code server, and the locations of a person."""

import socket
import stat
from pathlib import Path

import pytest
import yaml

from pipeline.ui.programs import LOCATION, socket_path, write_workspace
from warehouse.home import Home

GENERATED = {"python_module": {"module_name": "pipeline.definitions", "location_name": LOCATION}}
OTHER = {"python_module": {"module_name": "company.definitions", "location_name": "company"}}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (None, [LOCATION]),
        ([GENERATED], [LOCATION]),
        ([OTHER], [LOCATION, "company"]),
        ([OTHER, GENERATED], [LOCATION, "company"]),
    ],
)
def test_locations_of_a_person_are_added_and_the_homes_own_is_its_code_server(
    tmp_path: Path, entries: list[dict[str, object]] | None, expected: list[str]
) -> None:
    # Imported here: every worker collects these tests, one runs them, and the import takes 1 s.
    from dagster._core.workspace.load_target import WorkspaceFileTarget

    home, socket = Home(tmp_path), tmp_path / "code.socket"
    home.dagster.mkdir()
    file = home.dagster / "workspace.yaml"
    if entries is not None:
        file.write_text(yaml.safe_dump({"load_from": entries}))
    before = file.read_bytes() if entries else b""
    found = WorkspaceFileTarget(write_workspace(home, socket)).create_origins()
    origins = {origin.location_name: origin for origin in found}
    assert sorted(origins) == expected
    assert getattr(origins[LOCATION], "socket", None) == str(socket)
    assert (file.read_bytes() if entries else b"") == before


def test_the_socket_is_in_the_home() -> None:
    with socket_path(Home(Path("/h"))) as path:
        assert path == Path("/h/dagster/code-server.socket")


def test_a_socket_whose_path_in_the_home_is_too_long_is_in_a_temporary_folder(
    tmp_path: Path,
) -> None:
    with socket_path(Home(tmp_path / ("y" * 120))) as path, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()
