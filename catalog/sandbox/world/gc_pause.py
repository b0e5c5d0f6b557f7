"""The garbage collector, held from what is made only to stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking, again and again, what is being made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def kept_from_collector() -> Iterator[None]:
    """Keep the garbage collector from walking what is there, be it garbage or not.

    For a program that has made what it needs; it is the whole process that is concerned.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
