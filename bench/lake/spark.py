"""`python -m bench.lake.spark`: joins and audits on Spark against one process.

Starts a standalone master and two executors of one core. Each size is joined and audited through
Spark and in one process, and the rows are compared on every column. Then executors are killed at
random times. Prints the cost of a further million rows and the peak memory of the executors.
"""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
from rich.console import Console
from rich.table import Table

import almanac
from almanac import spark as almanac_spark
from bench.analyst.homes import COINS_ASKED, publish_home
from bench.children import run_apart
from bench.report import parse_arguments
from tests.lake.servers import running_spark, spark_session

MILLION: Final = 1_000_000
_KINDS: Final = ("attach_known", "features", "audit")


def main() -> None:
    size = parse_arguments(
        __doc__,
        rows=10 * MILLION,
        small=MILLION,
        audit_rows=MILLION,
        kills=10,
        kill_rows=3 * MILLION,
    )
    with TemporaryDirectory(prefix="almanac-spark-", dir=size.folder) as temporary:
        folder = Path(temporary)
        home = folder / "home"
        run_apart(publish_home, home, events=20_000, versions=100_000, coins=2_000, days=365)
        figures = run_all(folder, home, size)
    show(figures)
    if size.json is not None:
        size.json.write_text(json.dumps(figures, indent=1))


def run_all(folder: Path, home: Path, size: Any) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = []
    for rows in (1_000, size.small, size.rows, size.kill_rows, size.audit_rows):
        write_rows(folder, home, rows)
    with running_spark(folder / "cluster") as master:
        for rows in (1_000, size.small, size.rows):
            # A new session each: the peak memory is of this size alone.
            with session(master, folder) as spark:
                for kind in _KINDS[:2]:
                    figures.append(measure(spark, folder, home, kind, rows))
                    show(figures[-1:])
        with session(master, folder) as spark:
            figures.append(measure(spark, folder, home, "audit", size.audit_rows))
            show(figures[-1:])
        chance = random.Random(36)
        with session(master, folder) as spark:
            for _ in range(size.kills):
                figures.append(
                    measure(
                        spark, folder, home, "attach_known", size.kill_rows, kill_after_s=chance
                    )
                )
                show(figures[-1:])
    return figures


@contextmanager
def session(master: str, folder: Path) -> Iterator[Any]:
    options = {
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.files.maxPartitionBytes": "4m",
        "spark.task.maxFailures": "8",
    }
    with spark_session(master, **options) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark


def write_rows(folder: Path, home: Path, rows: int) -> None:
    """Write bars of 500 coins in order of time; at most 10 million of them."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{home / 'warehouse.duckdb'}' AS warehouse (READ_ONLY)")
        minutes = max(1, 300 * 1_440 * COINS_ASKED // rows)
        connection.execute(
            f"""
            COPY (
                SELECT 'coin-' || (i % {COINS_ASKED}) AS coin, i AS id,
                    (SELECT max(known_from) FROM warehouse.event_versions)
                        - INTERVAL 1 MINUTE * ((i // {COINS_ASKED}) * {minutes}) AS ts
                FROM range({rows}) AS _ (i)
            ) TO '{folder}/rows-{rows}.parquet' (ROW_GROUP_SIZE 100_000)
            """
        )


def measure(
    spark: Any,
    folder: Path,
    home: Path,
    kind: str,
    rows: int,
    kill_after_s: random.Random | None = None,
) -> dict[str, Any]:
    """Run one job through Spark and compare its rows with those of one process."""
    given, found = folder / f"rows-{rows}.parquet", folder / f"found-{kind}-{rows}"
    expected = folder / f"expected-{kind}-{rows}.parquet"
    with almanac.open(home) as database:
        if kind == "audit" and not (joined := folder / f"signals-{rows}.parquet").exists():
            database.attach_known(given, to=joined)
        source = folder / f"signals-{rows}.parquet" if kind == "audit" else given
        watch = ExecutorWatch(spark, None if kill_after_s is None else kill_after_s.uniform(0.5, 6))
        began = time.perf_counter()
        with watch:
            frame = spark.read.parquet(str(source))
            run_spark(kind, frame, database, found)
        seconds = time.perf_counter() - began
        if not expected.exists():
            run_plain(kind, source, database, expected)
    answer = {
        "kind": kind if kill_after_s is None else f"{kind}, executor killed",
        "rows": rows,
        "seconds": round(seconds, 1),
        "cpu_s": None if kill_after_s is not None else round(watch.cpu_s, 1),
        "python_peak_mb": round(max(watch.python_mb.values(), default=0)),
        "executor_peak_mb": round(max(watch.java_mb.values(), default=0)),
        "killed": watch.killed,
    }
    only_spark, only_plain = count_differences(found, expected)
    return {**answer, "only_spark": only_spark, "only_plain": only_plain}


class ExecutorWatch:
    """The peak memory and the processor time of the executors of a session, from /proc.

    `kill_after_s` kills one executor with SIGKILL after this time.
    """

    def __init__(self, spark: Any, kill_after_s: float | None) -> None:
        port = spark.sparkContext.getConf().get("spark.driver.port")
        self._mark = f"CoarseGrainedScheduler@127.0.0.1:{port}\0".encode()
        self._kill_after_s = kill_after_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self.python_mb: dict[int, float] = {}
        self.java_mb: dict[int, float] = {}
        self.killed = 0

    def __enter__(self) -> None:
        for executor in self._executors():
            for process in [executor, *descendants(executor)]:
                self._first[process] = cpu_s(process)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    @property
    def cpu_s(self) -> float:
        return sum(last - self._first.get(process, 0.0) for process, last in self._last.items())

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(0.2):
            executors = self._look()
            after = self._kill_after_s
            if after is not None and time.monotonic() - began > after and executors:
                os.kill(random.choice(executors), signal.SIGKILL)
                self.killed, self._kill_after_s = self.killed + 1, None

    def _look(self) -> list[int]:
        executors = self._executors()
        for executor in executors:
            note_peak(self.java_mb, executor)
            self._last[executor] = cpu_s(executor)
            for process in descendants(executor):
                note_peak(self.python_mb, process)
                self._last[process] = cpu_s(process)
        return executors

    def _executors(self) -> list[int]:
        found = []
        for process in process_ids():
            with suppress(OSError):
                line = Path(f"/proc/{process}/cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in line and self._mark in line:
                    found.append(process)
        return found


def process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def descendants(parent: int) -> list[int]:
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{parent}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def note_peak(peaks: dict[int, float], process: int) -> None:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                peaks[process] = max(peaks.get(process, 0), int(line.split()[1]) / 1_000)


def cpu_s(process: int) -> float:
    """Return the processor seconds of a process and of its children that have ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def run_spark(kind: str, frame: Any, database: almanac.Database, into: Path) -> None:
    if kind == "attach_known":
        answer = almanac_spark.attach_known(frame, database)
    elif kind == "features":
        answer = almanac_spark.features(frame, database, "1h")
    else:
        audited = almanac_spark.audit(frame, database)
        answer = audited.rows.select("id", "verdict")
    answer.write.mode("overwrite").parquet(str(into))


def run_plain(kind: str, source: Path, database: almanac.Database, into: Path) -> None:
    if kind == "attach_known":
        database.attach_known(source, to=into)
        return
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if kind == "features":
            # The features of a bar are known at its close.
            closed = into.with_suffix(".closed.parquet")
            late = "ts + INTERVAL 1 HOUR"
            now = f"TIMESTAMPTZ '{database.reader.now().isoformat()}'"
            connection.execute(
                f"COPY (SELECT *, {late} AS known_at, CASE WHEN {late} <= {now} THEN {late} END "
                f"AS at FROM '{source}') TO '{closed}'"
            )
            database.attach_known(closed, ts="at", to=into)
        else:
            audited = database.audit(source)
            connection.register("verdicts", audited.verdicts.reader())
            connection.execute(f"COPY (SELECT row - 1 AS id, verdict FROM verdicts) TO '{into}'")


def count_differences(found: Path, expected: Path) -> tuple[int, int]:
    """Return the rows that only Spark has, and that only one process has."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET memory_limit = '4GB'")
        names = [
            row[0] for row in connection.execute(f"DESCRIBE FROM '{found}/*.parquet'").fetchall()
        ]
        listed = ", ".join(names)
        if count_rows(connection, expected) > MILLION:
            listed = f"hash({listed})"  # Of all columns: the values need more memory.
        sides = (f"SELECT {listed} FROM '{found}/*.parquet'", f"SELECT {listed} FROM '{expected}'")
        counts = []
        for left, right in (sides, sides[::-1]):
            rows = f"SELECT count(*) FROM ({left} EXCEPT ALL {right})"
            counts.append(int(connection.execute(rows).fetchall()[0][0]))
    return counts[0], counts[1]


def count_rows(connection: duckdb.DuckDBPyConnection, file: Path) -> int:
    return int(connection.execute(f"SELECT count(*) FROM '{file}'").fetchall()[0][0])


def show(figures: list[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    console.print(f"load average {os.getloadavg()[0]:.1f}")
    table = Table(*figures[0])
    for row in figures:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


if __name__ == "__main__":
    main()
