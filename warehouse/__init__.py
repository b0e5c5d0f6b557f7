"""Data at rest: landing, lake, tables and queries, as a pure library.

Knows nothing of HTTP, Dagster or the command line. Its rooms, the ground first:

    files/      storage, modes, hashes, and locks that say who holds them
    schema/     columns, tables and views declared as data
    landing/    bodies as they came, manifests, the journal
    normalise/  one landed batch to typed rows
    publish/    from the lake to warehouse.duckdb
    history/    observations folded into versions: start at merge.py and fold.py

Beside them: home.py, which folders a home has; queries.py, reading what is published.
"""
