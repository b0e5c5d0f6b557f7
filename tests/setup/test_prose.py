"""The prose check finds each phrase of its list, and nothing in the project."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_cli import ROOT

PROGRAM = ROOT / ".ci" / "prose.py"
FAULTS = [
    *("All locks are released at once.", "A poll ends by itself.", "Delete the file by hand."),
    *("Ids are kept for ever.", "It gives the state at an instant.", "Two instants are equal."),
    *("The module is in no wheel.", "This is no error.", "The list has no form for it."),
    *(
        "The name is that of the table.",
        "A pull finds one that was lost.",
        "Whoever reads it waits.",
    ),
    *("The body of an answer is kept.", "They are words of a command.", "See Dagster's pages."),
    *("A kill is no harm.", "It waits for the lock of the home.", "What ends is started again."),
    "It " + "waits and " * 45 + "ends.",
]
FINE = [
    *(
        "There is no key.",
        "It is no longer used.",
        "Use `at once` or `by hand`.",
        "What is it?",
    ),
    *("The end of the day counts.", "It is one of three.", "A list shows all of them."),
]


def check(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_a_planted_phrase_is_found_on_its_line(tmp_path: Path, fault: str) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text(f"# Title\n\nSome words.\n- {fault}\n", "utf-8")
    module.write_text(f'def f(x: int) -> str:\n    return f"{{x}} of X. {fault}"\n', "utf-8")
    found = check(page, module)
    assert found.returncode == 1
    assert f"{page}:4: " in found.stdout
    assert f"{module}:2: " in found.stdout


def test_code_and_plain_sentences_are_not_reported(tmp_path: Path) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("\n".join((*FINE, "", "```sh", "at once", "```")), "utf-8")
    module.write_text('"""' + "\n".join(FINE) + '"""\n\nKINDS = ("instants", "at once")\n', "utf-8")
    assert check(page, module).stdout == ""


def test_the_project_has_no_such_phrase() -> None:
    assert check().stdout == ""
