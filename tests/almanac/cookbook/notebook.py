"""Run the notebook of the docs, and keep the outputs that it shows.

    python -m tests.almanac.cookbook.notebook HOME    # write the outputs into the notebook

Belongs here: cells of code, run in order in this process, and the value of the last expression of
each as text, or as a picture. Does not: Jupyter, which is not needed.
"""

import ast
import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from tests.almanac.cookbook.page import DOCS

NOTEBOOK: Final = DOCS / "analyst.ipynb"
HOME: Final = '"../cookbook-home"'
"""The home in the code of the notebook; the given one takes its place."""
_FIGURE: Final = re.compile(r"-?\d(?:[\d.,:TZ+e-]*[\dZ])?")
Output = dict[str, Any]


def read() -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text("utf-8"))
    return notebook


def codes(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any], home: Path) -> list[list[Output]]:
    """Run the cells of code in the folder of the notebook, as Jupyter does; return the outputs."""
    names: dict[str, Any] = {}
    with contextlib.chdir(DOCS):
        return [
            _outputs("".join(cell["source"]).replace(HOME, repr(str(home))), names, number)
            for number, cell in enumerate(codes(notebook), start=1)
        ]


def figures(outputs: list[Output]) -> list[list[str]]:
    """Return the numbers and instants of outputs, in their order.

    The words of a summary may be edited without the notebook, and pictures depend on fonts.
    """
    return [_FIGURE.findall("".join(output["data"].get("text/plain", ""))) for output in outputs]


def _outputs(code: str, names: dict[str, Any], number: int) -> list[Output]:
    parsed = ast.parse(code)
    last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
    exec(compile(parsed, f"<cell {number}>", "exec"), names)  # The notebook is code to run.
    if last is None:
        return []
    assert isinstance(last, ast.Expr)
    value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    if value is None:
        return []
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_svg_"):
        svg = value._repr_svg_().splitlines(keepends=True)
        data = {"image/svg+xml": svg, "text/plain": ["a chart"]}
    return [
        {
            "output_type": "execute_result",
            "execution_count": number,
            "metadata": {},
            "data": data,
        }
    ]


def main() -> None:
    os.environ.setdefault("MPLBACKEND", "Agg")
    notebook = read()
    for number, (cell, outputs) in enumerate(
        zip(codes(notebook), run(notebook, Path(sys.argv[1]).resolve()), strict=True), start=1
    ):
        cell["execution_count"], cell["outputs"] = number, outputs
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
