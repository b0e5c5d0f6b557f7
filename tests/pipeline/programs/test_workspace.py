"""What pages and daemon load: the code server of the home, and the locations of a person."""

from pathlib import Path

import pytest
import yaml

from pipeline.ui.names import LOCATION, socket_in
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
    from pipeline.ui.workspace import OwnLocation

    file, socket = tmp_path / "workspace.yaml", tmp_path / "code.socket"
    if entries is not None:
        file.write_text(yaml.safe_dump({"load_from": entries}))
    before = file.read_bytes() if entries else b""
    target = OwnLocation(socket, file)
    assert [origin.location_name for origin in target.create_origins()] == expected
    assert target.create_origins()[0] == target.origin
    assert target.origin.socket == str(socket)
    assert (file.read_bytes() if entries else b"") == before


def test_the_socket_is_in_the_home_unless_its_path_is_too_long(tmp_path: Path) -> None:
    short, long = Home(Path("/h")), Home(Path("/h") / ("x" * 120))
    assert socket_in(short, tmp_path) == Path("/h/dagster/code-server.socket")
    assert socket_in(long, tmp_path).parent == tmp_path
