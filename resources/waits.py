"""The line that is logged before a wait that a person would notice.

A command shows it on standard error, above its progress bar if there is one. A run of Dagster logs
it as an event of the run (`assets/landed.py`).
"""

import logging
from typing import Final

NOTICED_S: Final = 2.0
"""A shorter wait is not announced."""
log: Final = logging.getLogger(__name__)


def announce_wait(seconds: float, why: str) -> None:
    """Log how long a wait takes, and what for, if it is long enough to be noticed."""
    if seconds > NOTICED_S:
        log.warning("Waiting %.0f s: %s.", seconds, why.rstrip("."))
