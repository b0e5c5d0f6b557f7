"""The files that GitHub and pre-commit read: they parse, and agree with the project."""

import re

import yaml

from tests.test_cli import ROOT


def load(name: str) -> dict[str, object]:
    found = yaml.safe_load((ROOT / name).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def test_ci_runs_the_suite_on_each_supported_python() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert load(".github/workflows/ci.yml")["jobs"]
    (listed,) = re.findall(r"python: \[(.*)\]", workflow)
    oldest, after = re.findall(
        r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text("utf-8")
    )[0]
    assert listed == ", ".join(f'"3.{minor}"' for minor in range(int(oldest), int(after)))
