"""A disk that is never waited for: tests that use it do not test power cuts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def without_syncs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
