"""No body, however odd, fails the asset that shows a preview of it."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from tests.pipeline.homes_in_days import YESTERDAY, metadata_of, run_assets, settings_of
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

AT = datetime(2026, 3, 1, 9, tzinfo=UTC)
LONG = b"x" * 200_000
ROW = b'{"id":"a","title":"shown","coins":[{"slug":"bitcoin"}]}'
BODIES: dict[str, tuple[Feed, bytes]] = {
    "a field of 200 kB": ("export", b"id,title\r\na,shown\r\nb," + LONG + b"\r\n"),
    "a field of 200 kB first": ("export", b"title,id\r\n" + LONG + b",a\r\n"),
    "a header of 200 kB": ("export", LONG + b",id\r\na,b\r\n"),
    "a quote that is never closed": ("export", b'id,title\r\na,"' + LONG),
    "NULs": ("export", b"id,title\r\n\0\0,\0\r\n"),
    "no UTF-8": ("export", b"id,title\r\na,caf\xe9 \xff\r\n"),
    "gzip": ("export", gzip.compress(b"id,title\r\na,b\r\n")),
    "deep JSON": ("events", b"[" * 100_000 + b"]" * 100_000),
    "a deep value": ("events", b'{"data":[{"id":' + b"[" * 500 + b"]" * 500 + b"}]}"),
    "a list of numbers": ("events", b'{"data":[1,2,3]}'),
    "a number as list": ("events", b'{"data":5}'),
    "null": ("events", b"null"),
    "a number of 5,000 digits": ("events", b'{"data":[{"id":' + b"9" * 5_000 + b"}]}"),
    "half a surrogate pair": ("events", b'{"data":[{"id":"\\ud800","title":"\\udfff"}]}'),
    "long lists": ("events", b'{"data":[{"id":"a","coins":[' + b"1," * 100_000 + b"1]}]}"),
    "nothing": ("events", b""),
    "a page of 70 MB": ("events", b'{"data":[' + ROW + b'],"x":"' + b"x" * (70 << 20) + b'"}'),
    "odd deliveries": ("deliveries", b'{"type":{"a":[]},"createdAt":[[]]}'),
}


@pytest.mark.parametrize("name", BODIES)
def test_no_body_fails_the_asset_that_shows_it(name: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    feed, body = BODIES[name]
    pull = Pull(
        feed=feed,
        scope=Scope(),
        plan="elite",
        source="sandbox:1",
        observed_at=AT,
        content_at=AT,
        landed_at=AT,
        requests=1,
    )
    received = AT if feed == "deliveries" else None
    Home(settings.home).landing.land(pull, [(body, received)])
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_assets(settings, instance, f"landed_{feed}", partition=YESTERDAY)
    assert result.success
    metadata = metadata_of(result, f"landed_{feed}", YESTERDAY)
    json.dumps(metadata.get("preview", "")).encode()
    assert len(metadata.get("preview", "")) < 10_000
    assert ("shown" in metadata.get("preview", "")) == (name == "a field of 200 kB")
