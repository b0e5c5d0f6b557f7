"""Stored data: inbox, landing, normalised rows, history, schema, checks, Parquet, Iceberg.

It does not depend on HTTP, Dagster or the command line. Its packages:

    files/      storage, hashes, notes, and locks that record their holder
    schema/     columns, tables and views declared as data
    landing/    bodies as received, manifests, the journal, the inbox, imports
    normalise/  one landed batch to typed rows
    history/    observations folded into versions: start at merge.py and fold.py

Beside them: home.py has the folders of a home; queries.py reads the published file.
"""
