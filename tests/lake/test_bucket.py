"""The tests of the bucket, with an S3 server."""

from pathlib import Path

import pytest

from tests.warehouse.test_bucket import (  # noqa: F401
    fill,
    open_home,
    test_a_bucket_of_another_source_is_not_mixed,
    test_a_home_that_gets_a_bucket_uploads_what_it_has,
    test_a_kill_at_any_step_loses_no_batch_that_counts,
    test_a_rebuild_that_was_killed_is_continued,
    test_a_second_writer_stops_and_takes_over_later,
    test_an_empty_home_is_rebuilt_with_equal_history,
    test_two_writers_that_are_forced_lose_and_mix_nothing,
    test_without_its_bucket_no_batch_counts,
)

pytestmark = pytest.mark.lake


@pytest.fixture
def address(bucket: str) -> str:
    return bucket


def test_objects_have_the_names_and_bytes_of_the_files(tmp_path: Path, address: str) -> None:
    home = fill(open_home(tmp_path / "home", address))
    assert home.bucket is not None
    for folder in ("batches", "bodies"):
        for name in home.landing.storage.names(folder):
            assert home.bucket.read(name) == home.landing.storage.read(name)
