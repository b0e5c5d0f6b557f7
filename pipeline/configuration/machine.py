"""The settings of the machine: how long commands wait, and what a query may use."""

from pydantic import BaseModel, ByteSize, Field

from warehouse.files.locks import WAIT_S


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
