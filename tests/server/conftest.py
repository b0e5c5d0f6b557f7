"""The stores that the tests of the server run with: views in memory, and a published warehouse."""

from collections.abc import Iterator

import pytest

from tests.server import small_catalog
from tests.server.published_store import published

WAREHOUSE_IN_SHORT = {
    "test_filters_combine_with_and",
    "test_event_fields",
    "test_search_is_substring_over_name_and_symbol",
    "test_it_is_the_snapshot_of_five_past_midnight",
}
"""Tests that also run with a warehouse in `make test`; the others do so in `make test-long`."""
DIFFERENT_IN_A_WAREHOUSE = {
    "test_categories_are_a_list_with_ids_and_names": "categories are in the order of their ids",
    "test_values_are_those_of_the_catalog": "the categories and coins of an event are sorted",
    "test_it_has_the_columns_of_the_event_fields": "the categories of an event are sorted",
    "test_awkward_text_survives": "texts are trimmed, and their lines end with LF",
}
"""Tests whose catalog a warehouse does not keep as it was sent, and why."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kept_in" not in metafunc.fixturenames:
        return
    name = metafunc.function.__name__
    marks = () if name in WAREHOUSE_IN_SHORT else (pytest.mark.long,)
    kinds = ["memory", pytest.param("warehouse", marks=marks)]
    if name in DIFFERENT_IN_A_WAREHOUSE:
        del kinds[1]
    metafunc.parametrize("kept_in", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def kept_in(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return where `serving` keeps the catalog during a test that asks for this fixture."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "warehouse":
            patch.setattr(small_catalog, "keep", published)
        yield request.param
