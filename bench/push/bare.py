"""A bare loop of group commits: rows of a given size, in groups, each group durable. A child.

    python -m bench.push.bare FILE GROUP BYTES SECONDS

SQLite in WAL mode with synchronous=FULL, as the inbox; no index beside the key, no HTTP, no check.
"""

import os
import sqlite3
import sys
import time
from contextlib import closing

from bench.children import print_figures


def main() -> None:
    file, group, size, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS rows"
            " (seq INTEGER PRIMARY KEY, id TEXT, received_at INTEGER, body BLOB)"
        )
        body = os.urandom(size)
        rows, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO rows (id, received_at, body) VALUES (?, ?, ?)",
                [(f"dlv_{rows + number}", time.time_ns(), body) for number in range(group)],
            )
            connection.execute("COMMIT")
            rows += group
    print_figures(seconds=elapsed, rows=rows, per_s=rows / elapsed)


if __name__ == "__main__":
    main()
