"""docs/settings.md, from the settings: `python -m pipeline.settings_page > docs/settings.md`."""

import sys

from pipeline.settings import described

_HEAD = """# Settings

Generated from `pipeline/settings.py`; change that, then run
`python -m pipeline.settings_page > docs/settings.md`.

Each is an environment variable, or a line of the file `.env` where `almanac` is started.

Base address and key come from the same place: both from the environment, or both from `.env`,
which may then name a key file in its own folder alone. Else a `.env` that came with somebody's
files could send your key elsewhere. A `.env` that others may write to is refused.

What Almanac makes in home and state is its owner's alone, or its group's as well
(`ALMANAC_SHARED`); `almanac doctor` tells of files that others can read, and `almanac doctor --fix`
closes them. What a command writes where you name it (`--output`) has your own umask.

| Setting | Default | Meaning |
|---|---|---|
"""


def markdown() -> str:
    """Return the page."""
    rows = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in described()]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
