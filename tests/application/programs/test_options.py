"""The options of `almanac ui`: addresses that others reach are warned of, taken ones refused."""

import socket

import pytest

from tests.pipeline.conftest import Almanac

UNUSABLE = {"plan": "foo"}
"""A setting with which the command ends before it starts anything."""


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_ui_that_others_reach_is_warned_of(almanac: Almanac, host: str) -> None:
    done = almanac("ui", "--host", host, "--port", "39171", code=2, **UNUSABLE)
    assert f"the UI needs no password, and other machines reach it on {host}" in done.stderr
    done = almanac("ui", "--host", host, "--port", "39171", "--read-only", code=2, **UNUSABLE)
    assert "almanac: warning" not in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_ui_of_this_machine_is_not_warned_of(almanac: Almanac, host: str) -> None:
    done = almanac("ui", "--host", host, "--port", "39171", code=2, **UNUSABLE)
    assert "warning" not in done.stderr


def test_a_port_in_use_is_one_line(almanac: Almanac) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = almanac("ui", "--port", str(port), code=1)
    assert f"http://127.0.0.1:{port} can't be served: Address already in use" in done.stderr
