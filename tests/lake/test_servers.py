"""The servers that the tests of this folder start."""

import os

import pytest

from tests.lake.servers import spark_session

pytestmark = pytest.mark.lake


def test_each_test_has_an_empty_database(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchone() == (0,)


def test_the_bucket_is_reached_by_the_environment_alone(bucket: str) -> None:
    from pyarrow import fs

    files, path = fs.FileSystem.from_uri(bucket)
    with files.open_output_stream(f"{path}/a.txt") as stream:
        stream.write(b"a")
    assert files.get_file_info(f"{path}/a.txt").size == 1


def test_two_executors_share_the_work(spark_master: str) -> None:
    with spark_session(spark_master) as spark:
        assert spark.range(1_000).repartition(4).count() == 1_000
        pids = spark.sparkContext.parallelize(range(4), 4).map(lambda _: os.getppid()).collect()
        assert len(set(pids)) == 2
