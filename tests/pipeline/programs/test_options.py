"""The options of `almanac ui`: addresses that others reach are warned of, wrong ones refused."""

import pytest

from tests.pipeline.conftest import Almanac

UNUSABLE = {"plan": "foo"}
"""A setting with which the command ends before it starts anything."""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "data.example.com"])
def test_pages_that_others_reach_are_warned_of(almanac: Almanac, host: str) -> None:
    done = almanac("ui", "--host", host, code=2, **UNUSABLE)
    assert (
        f"warning: the UI needs no password, and other machines reach it on {host}" in done.stderr
    )
    assert (
        "almanac: warning"
        not in almanac("ui", "--host", host, "--read-only", code=2, **UNUSABLE).stderr
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_pages_of_this_machine_are_not_warned_of(almanac: Almanac, host: str) -> None:
    assert "warning" not in almanac("ui", "--host", host, code=2, **UNUSABLE).stderr


@pytest.mark.parametrize("prefix", ["almanac", "/al manac", "http://a/b", "/a\nb"])
def test_a_prefix_that_is_no_path_is_refused(almanac: Almanac, prefix: str) -> None:
    done = almanac("ui", "--path-prefix", prefix, code=2)
    assert "expected a path such as /almanac" in done.stderr


def test_the_logs_have_two_forms(almanac: Almanac) -> None:
    assert "'yaml'" in almanac("daemon", "--log-format", "yaml", code=2).stderr
