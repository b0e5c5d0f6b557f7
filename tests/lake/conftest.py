"""Servers that the tests of this folder share; a test is skipped if a program is missing."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from uuid import uuid4

import pytest

from tests.application.conftest import filled_home
from tests.lake.servers import (
    PostgresServer,
    create_database,
    find_postgres,
    running_postgres,
    running_s3,
    running_spark,
    s3_environment,
)

__all__ = ["filled_home"]


def _skip_without(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed: make lake-tools")


def skip_without_postgres() -> None:
    _skip_without("psycopg")
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    skip_without_postgres()
    with running_postgres(tmp_path_factory.mktemp("postgres") / "server") as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """The address of an empty database."""
    return create_database(postgres_server, f"almanac_{uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    _skip_without("moto")
    with running_s3(tmp_path_factory.mktemp("s3") / "s3.log") as address:
        yield address


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty folder in a bucket, with the environment to reach it."""
    for name, value in s3_environment(s3_server).items():
        monkeypatch.setenv(name, value)
    return f"s3://almanac/{uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def spark_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark master with two workers, each in processes of its own."""
    _skip_without("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: apt-get install openjdk-17-jre-headless")
    with running_spark(tmp_path_factory.mktemp("spark") / "cluster") as master:
        yield master
