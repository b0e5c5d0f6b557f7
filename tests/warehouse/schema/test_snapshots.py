"""The expanded text of the statements equals the golden files, which reviewers read."""

from difflib import unified_diff
from itertools import chain

from tests.warehouse.schema.snapshots import snapshots, stored


def test_the_expanded_statements_match_the_golden_files() -> None:
    now, before = snapshots(), stored()
    assert now
    differences = "".join(
        chain.from_iterable(
            unified_diff(
                before.get(name, "").splitlines(keepends=True),
                now.get(name, "").splitlines(keepends=True),
                f"tests/warehouse/sql_snapshots/{name}",
                "as it expands now",
            )
            for name in sorted({*now, *before})
        )
    )
    assert not differences, (
        "the text of statements changed; if it should, run "
        f"`python -m tests.warehouse.schema.snapshots` and commit the files\n{differences}"
    )
