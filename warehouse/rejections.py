"""Deliveries that were landed and are not in the history, as a published warehouse lists them.

Belongs here: the rejected rows of deliveries. Does not: which delivery of the inbox a row is
(pipeline/cli/push), dead letters.
"""

from collections.abc import Mapping
from pathlib import Path

import duckdb

from warehouse.errors import WarehouseError
from warehouse.queries import connected
from warehouse.sql import Statements

_SQL = Statements(__package__)

Reasons = Mapping[int | None, str]
"""Why the delivery at a position of its batch was rejected; at None, why all of the batch is left
out."""


def rejected_deliveries(warehouse: Path) -> dict[str, Reasons]:
    """Return the reasons by batch id; nothing if no warehouse is published yet.

    Raises:
        WarehouseError: it can't be read.
    """
    found: dict[str, dict[int | None, str]] = {}
    if not warehouse.exists():
        return {}
    try:
        with connected(warehouse) as connection:
            rows = connection.execute(_SQL["list_rejected_deliveries"]).fetchall()
    except duckdb.Error as error:
        raise WarehouseError(f"{warehouse} can't be read: {str(error).splitlines()[0]}") from error
    for batch_id, position, reason in rows:
        found.setdefault(batch_id, {})[position] = reason
    return dict(found)
