"""The settings of the machine: how long commands wait, and what DuckDB may use."""

from typing import Final

from pydantic import BaseModel, ByteSize, Field

from pipeline.configuration.capacity import cores, memory_bytes
from warehouse.files.locks import WAIT_S
from warehouse.sql import USUAL_LIMITS, MakingLimits

_SHARE: Final = 0.4
"""The part of the memory that DuckDB may use; Dagster's programs and a run need the rest."""
_LEAST_BYTES: Final = 200_000_000


class MachineSettings(BaseModel):
    """What a process may use of its machine or container."""

    wait_s: float = Field(
        default=WAIT_S,
        ge=0,
        description="Seconds that a command waits for another command that uses the home.",
    )
    sql_memory: ByteSize = Field(
        default="2GB",
        ge=100_000_000,
        validate_default=True,
        description="Memory of `almanac sql`; beyond it a query spills to disk, twice as much.",
    )
    sql_threads: int | None = Field(
        default=None, ge=1, description="Threads of such a query. Default: one per core."
    )
    sql_timeout_s: float = Field(
        default=300.0, gt=0, description="Seconds after which such a query is stopped."
    )
    duckdb_memory: ByteSize | None = Field(
        default=None,
        ge=100_000_000,
        description="Memory of DuckDB in a merge and a publication; beyond it they spill to disk. "
        "Default: 40 % of the memory of the machine or container, at most 1.6 GB.",
    )
    duckdb_threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads of DuckDB in a merge and a publication. Default: one per core that "
        "the machine or container may use.",
    )

    @property
    def making_limits(self) -> MakingLimits:
        """What DuckDB may use while it makes lake or warehouse."""
        memory = self.duckdb_memory
        if memory is None:
            share = max(int(memory_bytes() * _SHARE), _LEAST_BYTES)
            memory = ByteSize(min(share, USUAL_LIMITS.memory_bytes))
        return MakingLimits(int(memory), self.duckdb_threads or cores())
