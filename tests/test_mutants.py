"""The planted faults still apply to the code, so that they can be run at any time."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATCHES = sorted((ROOT / "tests" / "mutants").rglob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_every_planted_fault_applies_to_the_code_as_it_is(patch: Path) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert patch.read_text().startswith("# ")


def test_every_planted_fault_is_in_the_list() -> None:
    listed = (ROOT / "tests" / "mutants" / "README.md").read_text()
    assert len(PATCHES) >= 26
    for patch in PATCHES:
        assert patch.stem in listed
