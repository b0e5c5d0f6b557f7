"""The place of the Iceberg tables: a catalog and a folder. This module imports no library."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """Where publications are committed as Iceberg tables."""

    catalog: str = field(repr=False)
    """The address of the database of the catalog; it may contain a password."""
    location: str
    """The address of the folder of the tables, as `s3://bucket/folder` or `file:///folder`."""
