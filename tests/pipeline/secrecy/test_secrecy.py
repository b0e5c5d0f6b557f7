"""Key and alert address are in memory only: in no page, config, log or file.

Posting to that address is tested in test_notices.py.
"""

from pathlib import Path

import dagster as dg
from pydantic import SecretStr

from assets.layout import Layout
from catalog.sandbox.sandbox import Sandbox
from pipeline.build import build_definitions, build_resources
from pipeline.health.warnings import read_health
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import NOW, address_of, run_assets, run_sandbox_days, settings_of
from tests.pipeline.small_home import NOW as THEN
from tests.pipeline.small_home import SmallHome
from warehouse.clock import utc_now
from warehouse.history.merge import merge
from warehouse.home import Home

HOOK = "canary-hook-5d20"
PUSH = "canary-push-71c4-secret"


def test_no_file_of_a_home_and_nothing_dagster_keeps_shows_a_secret(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise")
    given = address_of(almanac_sandbox.base_url, key)
    hook = SecretStr(f"http://127.0.0.1:9/{HOOK}")
    settings = settings_of(tmp_path, **given, alert_url=hook, webhook_secrets=SecretStr(PUSH))
    secrets = (key, HOOK, PUSH)
    with instance_of(Home(tmp_path)) as instance:
        run_sandbox_days(settings, instance, days=1, now=NOW.replace(hour=12))
        for run in instance.get_runs():
            lines = [str(entry) for entry in instance.all_logs(run.run_id)]
            kept = "".join(lines) + str(run.run_config) + str(run.tags)
            assert [secret for secret in secrets if secret in kept] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    for secret in secrets:
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
    definitions = build_definitions(settings)
    shown = repr(settings) + repr(definitions.resources) + repr(definitions.sensors)
    shown += repr(build_resources(Layout(), settings, clock=utc_now))
    assert [secret for secret in secrets if secret in shown] == []


def test_the_failure_for_a_refused_key_does_not_show_the_key(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    canary = "canary-4f1d9a77c2"
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, canary))
    with instance_of(Home(tmp_path)) as instance:
        result = run_assets(
            settings,
            instance,
            "landed_coins",
            partition=NOW.date(),
            clock=lambda: NOW,
        )
        assert not result.success
        logs = "".join(str(entry) for entry in instance.all_logs(result.run_id))
        assert "Check the API key" in logs
        assert canary not in logs
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or canary.encode() not in path.read_bytes(), path
    assert isinstance(result, dg.ExecuteInProcessResult)


def test_status_warns_of_a_key_that_the_service_repeated(tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    small.land("coins", body=b'{"data": [{"slug": "a", "name": "[API key removed]"}]}')
    merge(small.home)
    health = read_health(small.settings, small.home, THEN)
    (warned,) = [warning for warning in health.warnings if warning.kind == "secrets"]
    assert "The service repeated the API key in 1 batch" in warned.text
