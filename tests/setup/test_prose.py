"""The prose check finds each phrase of its list, and nothing in the project."""

import re
import subprocess
import sys
from pathlib import Path

from tests.test_cli import ROOT

FAULTS = [
    *("All locks are released at once.", "A poll ends by itself.", "Delete the file by hand."),
    *("Ids are kept for ever.", "It gives the state at an instant.", "Two instants are equal."),
    *("The module is in no wheel.", "This is no error.", "The list has no form for it."),
    *("The name is that of the table.", "A pull finds one that was lost.", "Whoever reads waits."),
    *("The body of an answer is kept.", "They are words of a command.", "See Dagster's pages."),
    *("A kill is no harm.", "It waits for the lock of the home.", "What ends is started again."),
    "Every door shows it.",
    "It " + "waits and " * 45 + "ends.",
]
FINE = [
    *("There is no key.", "It is no longer used.", "Use `at once` or `by hand`.", "What is it?"),
    *("The end of the day counts.", "It is one of three.", "A list shows all of them."),
]


def check(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "prose.py"), *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_planted_phrases_are_found_on_their_lines_and_code_and_plain_sentences_are_not(
    tmp_path: Path,
) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("\n\n".join((*FAULTS, *FINE, "```sh", "at once", "```")), "utf-8")
    lines = [f'    return f"{{x}} of X. {text}"' for text in (*FAULTS, *FINE)]
    code = ["def f(x: int) -> str:", *lines, 'KINDS = ("instants", "at once")', ""]
    code += ["def g():", '    """It ends', "    here. `dead_name` was renamed."]
    module.write_text("\n".join([*code, '    """', ""]), "utf-8")
    found = check(page, module)
    assert found.returncode == 1
    count = len(FAULTS)
    in_module = (*range(2, count + 2), len(code) - 1, len(code))
    for path, numbers in ((page, range(1, 2 * count, 2)), (module, in_module)):
        on = re.findall(rf"^{re.escape(str(path))}:(\d+): ", found.stdout, re.MULTILINE)
        assert set(map(int, on)) == set(numbers)


def test_the_project_has_no_such_phrase() -> None:
    assert check().stdout == ""
