"""The command line in this process, as for the tests of the pipeline."""

from tests.pipeline.conftest import almanac, private_files

__all__ = ["almanac", "private_files"]
