"""The cookbook: 25 questions whose SQL, Python and shown answer agree."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.almanac.cookbook.page import PAGE, QUESTIONS, RUNNER, runner
from tests.hangs import HANGS_AFTER_S


def test_sql_python_and_page_agree_on_each_question_in_any_zone_of_the_machine(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(home)],
        cwd=home,
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert done.stdout.endswith(f"\n{QUESTIONS} questions, 0 with another answer, 0 not run\n")


class TestRunner:
    @pytest.fixture
    def page(self, tmp_path: Path) -> Path:
        """A page of the first two questions."""
        page, text = tmp_path / "page.md", PAGE.read_text("utf-8")
        page.write_text(text[: text.index("## 3. ")], "utf-8")
        return page

    def test_another_answer_than_the_page_shows_is_reported_and_can_be_written(
        self, home: Path, page: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        right = page.read_text("utf-8")
        page.write_text(right.replace("Swapwise Lists OKB  ", "Swapwise Lists OKC  "), "utf-8")
        assert runner().main([str(home), "--page", str(page)]) == 1
        assert "2 questions, 1 with another answer" in capsys.readouterr().out
        assert runner().main([str(home), "--page", str(page), "--write"]) == 0
        assert page.read_text("utf-8") == right

    @pytest.mark.parametrize(
        ("old", "new"),
        [("AND impact >= 7.5", "AND impact >= 9.5"), ("SELECT title,", "SELECT slug,")],
    )
    def test_sql_and_python_that_differ_are_reported_also_when_writing(
        self, home: Path, page: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
    ) -> None:
        text = page.read_text("utf-8")
        assert old in text
        page.write_text(text.replace(old, new), "utf-8")
        assert runner().main([str(home), "--page", str(page), "--write"]) == 1
        assert "SQL:\n" in capsys.readouterr().out

    def test_it_needs_the_package_alone(self) -> None:
        imported = set()
        for node in ast.walk(ast.parse(RUNNER.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
        assert imported - sys.stdlib_module_names == {"almanac"}


@pytest.mark.parametrize("number", range(1, QUESTIONS + 1))
def test_a_question_has_an_introduction_a_trap_and_all_blocks(number: int) -> None:
    section = PAGE.read_text("utf-8").split(f"\n## {number}. ")[1].split("\n## ")[0]
    title, first = section.split("\n\n")[:2]
    assert title.endswith("?")
    assert first and not first.startswith("```")
    assert "\n**Trap:** " in section
    for language in ("sql", "python", "text"):
        assert f"\n```{language}\n" in section
