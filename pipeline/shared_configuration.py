"""The settings of storage that several machines share.

Only pipeline/settings.py reads their values.
"""

from pydantic import Field, SecretStr

from pipeline.configuration import Place, SettingsGroup


class SharedSettings(SettingsGroup):
    """Storage that several machines share: a database, a bucket, and tables for other engines."""

    postgres: SecretStr | None = Field(
        default=None,
        description="Address of a PostgreSQL database, `postgresql://USER:PASSWORD@HOST/NAME`. It "
        "has the lease of the one writer, the list of the files in the bucket, and the catalog of "
        "the Iceberg tables. A file is safer: `ALMANAC_POSTGRES_FILE`. Default: none.",
    )
    postgres_file: Place | None = Field(
        default=None, description="A file that contains that address and nothing else."
    )
    bucket: str | None = Field(
        default=None,
        description="Where landing and lake are kept beside the home, such as "
        "`s3://BUCKET/FOLDER`; another machine continues from there. Needs `ALMANAC_POSTGRES`. "
        "Access is configured as for all S3 programs (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`). "
        "Default: the home is the only copy.",
    )
    iceberg: bool = Field(
        default=False,
        description="Whether each publication is committed to Iceberg tables as well: in the "
        "bucket, or else in `iceberg` of the home. Their catalog is in PostgreSQL, or else a "
        "SQLite file. Needs the packages of `crypto-almanac[lake]`.",
    )
    lease_s: float = Field(
        default=60.0,
        ge=1,
        description="Seconds after which another machine may take over from a writer that "
        "no longer answers.",
    )
