"""Decompression of gzip, for answers of the service and for landed bodies."""

import gzip
import random

import pytest

from warehouse.codecs import DamagedGzip, GzipDecoder, UnreadableBody, gunzip

TEXT = random.Random(7).randbytes(50_000) + b"word " * 100_000
MEMBERS = gzip.compress(TEXT[:20_000]) + gzip.compress(TEXT[20_000:])
MAX_BYTES = 1 << 24


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1_000, 16_384, 1 << 20])
def test_members_are_decompressed_from_chunks_of_any_size(size: int) -> None:
    decoder = GzipDecoder()
    pieces = [piece for chunk in cut(MEMBERS, size) for piece in decoder.pieces(chunk)]
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) <= 1 << 20
    assert (decoder.packed_bytes, decoder.is_cut_off) == (len(MEMBERS), False)


@pytest.mark.parametrize("size", [7, 16_384, 1 << 20])
def test_zeros_after_a_landed_file_are_skipped(size: int) -> None:
    padded = MEMBERS + bytes(40_000)
    assert b"".join(gunzip(cut(padded, size), max_bytes=MAX_BYTES)) == TEXT


def test_zeros_after_an_answer_are_damage() -> None:
    with pytest.raises(DamagedGzip):
        list(GzipDecoder().pieces(MEMBERS + bytes(10)))


def test_an_end_within_a_member_is_detected_even_if_its_text_is_complete() -> None:
    decoder = GzipDecoder()
    assert b"".join(decoder.pieces(MEMBERS[:-4])) == TEXT
    assert decoder.is_cut_off
    with pytest.raises(UnreadableBody, match="cut off"):
        list(gunzip([MEMBERS[:-4]], max_bytes=MAX_BYTES))
