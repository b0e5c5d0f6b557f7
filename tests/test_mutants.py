"""The planted faults still apply to the code, so that they can be run at any time."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATCHES = sorted((ROOT / "tests" / "mutants").rglob("*.patch"))
LIST = ROOT / "tests" / "mutants" / "README.md"
CHANGED = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)
"""A file that a patch changes."""
STATEMENT = re.compile(r"`(\S+\.sql)`: (\w+) \|")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_every_planted_fault_applies_to_the_code_as_it_is(patch: Path) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert patch.read_text().startswith("# ")


def test_every_planted_fault_is_in_the_list_with_the_files_that_it_changes() -> None:
    assert len(PATCHES) >= 26
    assert _listed() == {
        f"{patch.parent.name}/{patch.stem}": CHANGED.findall(patch.read_text()) for patch in PATCHES
    }


def test_the_list_names_statements_of_the_sql_files() -> None:
    named = STATEMENT.findall(LIST.read_text())
    assert named
    for file, statement in named:
        assert f"-- name: {statement}\n" in (ROOT / file).read_text()


def _listed() -> dict[str, list[str]]:
    """Return the paths in the column File, by folder and name of the patch."""
    listed: dict[str, list[str]] = {}
    folder = ""
    for line in LIST.read_text().splitlines():
        if heading := re.match(r"\| Patch of `(\w+)/` \| File \|", line):
            folder = heading[1]
        elif row := re.match(r"\| (\d\d-\S+) \| ([^|]+) \|", line):
            listed[f"{folder}/{row[1]}"] = re.findall(r"`([^`]+)`", row[2])
    return listed
