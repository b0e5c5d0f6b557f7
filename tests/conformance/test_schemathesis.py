"""The running sandbox against its own OpenAPI document, all phases of schemathesis."""

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
SEED = 20_261_121


def run_schemathesis(base_url: str, key: str, folder: Path, *, examples: int) -> None:
    """Run schemathesis against a server; fail with the end of its output if it finds a failure."""
    report = folder / "report.json"
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)),
        *("run", base_url + "/v2/openapi.json"),
        *("--header", f"x-api-key: {key}", "--phases", "examples,coverage,fuzzing,stateful"),
        *("--checks", "all", "--mode", "all", "--max-examples", str(examples)),
        *("--seed", str(SEED), "--continue-on-failure", "--no-color"),
        *("--generation-database", "none", "--report", "json", "--report-json-path", str(report)),
        *("--suppress-health-check", "all", "--warnings", "off"),
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=5_000
    )
    output = "\n".join(line[:400] for line in (done.stdout + done.stderr).splitlines()[-150:])
    assert done.returncode == 0, output


@pytest.mark.long
@pytest.mark.timeout(5_400)
def test_no_case_fails_or_gets_a_5xx(tmp_path: Path) -> None:
    """The cheap test of the same rules is in test_documented_answers.py."""
    cases = 50_000
    # In 2017 the catalog was small, so that exports take little time.
    with Sandbox(now=datetime(2017, 3, 1, 12, tzinfo=UTC), export_interval_s=0) as sandbox:
        key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        run_schemathesis(sandbox.base_url, key, tmp_path, examples=3_550)
        statuses = Counter(f"{seen.status // 100}xx" for seen in sandbox.requests)
    assert "5xx" not in statuses
    assert statuses.total() >= cases
    # A run with errors alone would have tested nothing.
    assert statuses["2xx"] >= cases * 0.4
    assert statuses["4xx"] >= cases * 0.2
