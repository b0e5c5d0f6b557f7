"""The bound after which a test takes a program, a request or a wait for a hang.

It says nothing of how fast something is: a machine that is shared can stall for minutes. A test
that holds a limit of time of the product states that limit itself.
"""

from typing import Final

HANGS_AFTER_S: Final = 600.0
