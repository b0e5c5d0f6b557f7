"""docs/settings.md, from the settings: `python -m pipeline.settings_page > docs/settings.md`."""

import sys

from pipeline.settings import described

_HEAD = """# Settings

Generated from `pipeline/settings.py`; change that, then run
`python -m pipeline.settings_page > docs/settings.md`.

Each is an environment variable, or a line of the file `.env` where `almanac` is started.

| Setting | Default | Meaning |
|---|---|---|
"""


def markdown() -> str:
    """Return the page."""
    rows = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in described()]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
