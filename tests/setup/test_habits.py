"""The files that GitHub and pre-commit read: they parse, and agree with the project."""

import re
from pathlib import Path

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


def test_each_form_and_configuration_is_yaml() -> None:
    names = [".pre-commit-config.yaml", ".github/dependabot.yml"]
    names += [str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.yml")]
    assert all(load(name) for name in names)


def test_each_folder_with_an_owner_exists() -> None:
    lines = (ROOT / ".github/CODEOWNERS").read_text("utf-8").splitlines()
    folders = [line.split()[0] for line in lines if line.startswith("/")]
    assert folders
    assert all(Path(f"{ROOT}{folder}").is_dir() for folder in folders)
