"""From the lake to warehouse.duckdb: in full or as a delta, with checks."""
