"""What must hold of a warehouse before readers see it."""

from warehouse.errors import WarehouseError
from warehouse.lake_inputs import Inputs
from warehouse.staged import Staged
from warehouse.statements import statement


def check(staged: Staged, inputs: Inputs, *, everything: bool) -> None:
    """Check counts against the lake's own, and the versions of all or of touched events.

    Raises:
        WarehouseError: something does not hold; what was published stands.
    """
    wrong = staged.run(statement("publish_check"), {"everything": everything})
    if wrong:
        names = ("event_id", "rows", "version", "versions", "first", "last", "current")
        told = "; ".join(
            ", ".join(f"{name} {value}" for name, value in zip(names, row, strict=True))
            for row in wrong
        )
        raise WarehouseError(
            "events and their versions disagree, so nothing was published and the old warehouse "
            f"stands: {told}. Run `almanac replay`; if it recurs, it is a fault of Almanac."
        )
    if not inputs.state:
        return
    ((events, expected_events, versions, expected_versions),) = staged.run(
        statement("publish_check_counts"), inputs.state
    )
    if (events, versions) != (expected_events, expected_versions):
        raise WarehouseError(
            f"{events} events and {versions} versions would be published, but the lake has "
            f"{expected_events} and {expected_versions}. The old warehouse stands; run "
            "`almanac replay`."
        )
