"""The asset `iceberg_tables`: each publication as tables of an Iceberg catalog, for other engines.

It exists only with ALMANAC_ICEBERG. A sensor of its own requests it after each publication that
changed a table. The published tables do not depend on it: if the catalog fails, the run fails.
"""

from collections.abc import Callable
from typing import Any, Final

import dagster as dg

from almanac.core.errors import WarehouseError
from assets.layout import RETRIES, Layout, step_failure
from warehouse.home import Home
from warehouse.iceberg import STEPS, TABLES, IcebergError, push_to_named_catalog

NAME: Final = "iceberg_tables"
SENSOR: Final = "iceberg"


def iceberg_tables(layout: Layout, catalog: str) -> dg.AssetsDefinition:
    """Return the asset for a catalog, named as CATALOG or CATALOG.NAMESPACE."""
    decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=layout.key(NAME),
        deps=layout.keys(table for table in TABLES if table != STEPS),
        description="The published tables in the Iceberg catalog of ALMANAC_ICEBERG, a snapshot "
        "for each publication.",
        automation_condition=dg.AutomationCondition.eager(),
        pool=layout.name(SENSOR),
        retry_policy=RETRIES,
        required_resource_keys=layout.names("home"),
        **layout.attributes("lake", {"iceberg"}),
    )

    @decorate
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        home: Home = layout.resource(context, "home")
        try:
            report = push_to_named_catalog(home.root, catalog)
        except IcebergError as error:
            raise dg.Failure(str(error)) from error
        except WarehouseError as error:
            raise step_failure(error) from error
        return dg.MaterializeResult(
            metadata={
                "publication": report.publication,
                "published": dg.MetadataValue.timestamp(report.published_at),
                "tables written": len(report.written),
                **{f"snapshot of {name}": str(id_) for name, id_ in report.snapshots.items()},
            }
        )

    return asset


def iceberg_sensor(layout: Layout) -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that requests the asset."""
    return dg.AutomationConditionSensorDefinition(
        layout.name(SENSOR),
        target=dg.AssetSelection.assets(layout.key(NAME)),
        description="Requests the asset iceberg_tables after a publication that changed a table.",
        default_status=layout.sensor_status(SENSOR),
    )
