"""The page of the cookbook, and its runner, which is a program beside it."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

DOCS: Final = Path(__file__).parents[3] / "docs"
PAGE: Final = DOCS / "cookbook.md"
RUNNER: Final = DOCS / "run_cookbook.py"
QUESTIONS: Final = 25


@cache
def runner() -> ModuleType:
    """Return the runner as a module."""
    spec = importlib.util.spec_from_file_location(RUNNER.stem, RUNNER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by name.
    sys.modules[RUNNER.stem] = module
    spec.loader.exec_module(module)
    return module
