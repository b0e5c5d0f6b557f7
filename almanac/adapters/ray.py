"""Ray: `attach_known` on the batches of a dataset, as `Database.attach_known`.

The published file must be on a disk that all workers share. Ray is not a dependency.
"""

from pathlib import Path
from typing import Any

from almanac.cluster.row_join import SLICE_ROWS, JoinOptions
from almanac.cluster.shared_join import SharedJoin
from almanac.database import Database


def attach_known(dataset: Any, home: str | Path | Database, **options: Any) -> Any:
    """Return a Ray dataset with the next event of each coin; `options` are those of `attach_known`.

    The call computes the distinct coins. A publication that replaces the file stops the work.

    Raises: as `Database.attach_known`; a future timestamp only when the dataset is computed.
    """
    given = JoinOptions(**options)
    join = SharedJoin.prepare(home, given, dataset.unique(given.coin))
    return dataset.map_batches(join.join_rows, batch_format="pyarrow", batch_size=SLICE_ROWS)
