"""Dask: `attach_known` on the partitions of a frame, as `Database.attach_known`.

The published file must be on a disk that all workers share. Dask is not a dependency.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from almanac.cluster.row_join import JoinOptions
from almanac.cluster.shared_join import SharedJoin
from almanac.database import Database
from almanac.frames import pandas_of


def attach_known(frame: Any, home: str | Path | Database, **options: Any) -> Any:
    """Return a Dask frame with the next event of each coin; `options` are those of `attach_known`.

    The call computes the distinct coins. A publication that replaces the file stops the work.

    Raises: as `Database.attach_known`; a future timestamp only when the frame is computed.
    """
    given = JoinOptions(**options)
    texts = frame[given.coin].drop_duplicates().compute()
    join = SharedJoin.prepare(home, given, [None if pd.isna(text) else text for text in texts])
    return frame.map_partitions(_join_partition, join, meta=_join_partition(frame._meta, join))


def _join_partition(part: pd.DataFrame, join: SharedJoin) -> pd.DataFrame:
    rows = pa.Table.from_pandas(part, preserve_index=False)
    joined = join.join_rows(rows)
    new = pandas_of(joined.select(joined.column_names[rows.num_columns :]))
    return pd.concat([part, new.set_index(part.index)], axis=1)
