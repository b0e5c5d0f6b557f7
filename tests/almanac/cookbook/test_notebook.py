"""The notebook of the docs runs, and shows what it gives."""

from pathlib import Path

from tests.almanac.cookbook import notebook
from tests.almanac.cookbook.prices import ANNOUNCED, CANCELLED, LISTED, RUN_UP, SLIPPED


def test_each_cell_gives_the_figures_that_the_notebook_shows(home: Path) -> None:
    shown = notebook.read()
    given = notebook.run(shown, home)
    cells = notebook.codes(shown)
    for cell, outputs in zip(cells, given, strict=True):
        code = "".join(cell["source"])
        assert notebook.figures(cell["outputs"]) == notebook.figures(outputs), code
    kinds = [kind for outputs in given for output in outputs for kind in output["data"]]
    assert kinds.count("image/svg+xml") == 1


def test_the_notebook_names_the_effects_that_are_planted_in_the_prices() -> None:
    text = " ".join("".join(cell["source"]) for cell in notebook.read()["cells"])
    for planted in (ANNOUNCED, RUN_UP, LISTED, -SLIPPED, -CANCELLED):
        assert f"{planted * 100:g} %" in text
