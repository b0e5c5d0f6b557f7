-- One row per revision of the schema that a database of Dagster says it has; a whole one says one.
SELECT version_num FROM alembic_version
