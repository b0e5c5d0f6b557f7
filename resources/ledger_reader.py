"""A ledger that is only looked at: nothing is made, locked out or written by it.

For whoever shows what is left of the month. Whoever sends takes `ledger.Ledger` itself.
"""

import os

from resources.allowance import Allowance
from resources.errors import LedgerUnusable
from resources.ledger import Ledger


class LedgerReader(Ledger):
    """Opens the file of a key read-only, so that another user may look at it."""

    def peek(self) -> Allowance:
        """Return the state as it is.

        Raises:
            LedgerUnusable: there is no such file, or it can't be read.
        """
        try:
            return super().peek()
        finally:
            self.close()

    def _opened(self) -> int:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerUnusable(
                f"the limits of the key can't be read in {self.path.parent}: {error.strerror}"
            ) from error
        self._process = os.getpid()
        return self._file
