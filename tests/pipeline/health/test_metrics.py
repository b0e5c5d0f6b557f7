"""The metrics of a home, as Prometheus reads them."""

import signal
import subprocess
import sys
import urllib.request
from datetime import timedelta
from pathlib import Path

from prometheus_client import generate_latest

from pipeline.health.checks import CHECKS
from pipeline.health.metrics import make_registry
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.home import Home


def read_metrics(small: SmallHome, home: Home, days: int = 0) -> dict[str, float]:
    registry = make_registry(small.settings, home, lambda: NOW + days * DAY)
    lines = generate_latest(registry).decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_the_metrics_have_warnings_and_facts(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "home")
    small.land()
    found = read_metrics(small, small.home)
    assert found["almanac_home"] == 1
    assert found["almanac_batches_to_merge"] == 5
    assert found['almanac_feed_age_seconds{feed="export"}'] == 0
    assert "almanac_published_timestamp_seconds" not in found
    assert found["almanac_free_bytes"] > 0
    checks = {name: value for name, value in found.items() if name.startswith("almanac_check_")}
    assert len(checks) == len(CHECKS)
    assert checks['almanac_check_warnings{check="stale",topic="freshness"}'] == 0
    stale = read_metrics(small, small.home, days=3)
    assert stale['almanac_check_warnings{check="stale",topic="freshness"}'] == 5


def test_a_home_that_is_missing_or_unreadable_is_0(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "home")
    assert read_metrics(small, Home(tmp_path / "none"))["almanac_home"] == 0
    (small.home.root / "home.json").write_text("{")
    assert read_metrics(small, small.home) == {"almanac_home": 0}


def test_the_command_answers_until_ctrl_c(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "home")
    small.land(at=NOW - timedelta(days=9))
    process = subprocess.Popen(
        [Path(sys.executable).with_name("almanac"), "metrics", "--listen", "127.0.0.1:0"],
        env={"ALMANAC_HOME": str(small.home.root), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        url = next(word.rstrip(";") for word in line.split() if word.startswith("http://"))
        with urllib.request.urlopen(url, timeout=HANGS_AFTER_S) as response:
            assert b"almanac_home 1.0" in response.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HANGS_AFTER_S) == 130
    finally:
        process.kill()
        process.stdout.close()
