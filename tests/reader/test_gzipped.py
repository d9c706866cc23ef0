"""Intact, truncated and damaged gzip files give the same bytes with isal and with zlib."""

from __future__ import annotations

import gzip
import io
import random
import threading
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from visualprof.errors import SourceError
from visualprof.reader import gzipped
from visualprof.reader.source import Source

TEXT = b"".join(b'{"name":"op%d","ts":%d},\n' % (i * i % 97, i * 977) for i in range(20_000))
PACKED = gzip.compress(TEXT, mtime=0)


@pytest.fixture(params=["isal", "zlib"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of unpacking; isal is left out where it has no wheel."""
    if request.param == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setattr(gzipped, "_import_isal", lambda: None)


def unpacked(data: bytes, size: int) -> tuple[bytes, str | None]:
    """The bytes that come out, and the fault that ends them."""
    plain: list[bytes] = []
    try:
        for piece in gzipped.unpack(io.BytesIO(data), size):
            assert 0 < len(piece) <= size + 300, "a piece is of the size that was asked for"
            plain.append(piece)
    except zlib.error as error:
        return b"".join(plain), str(error).rpartition(": ")[2]
    return b"".join(plain), None


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [512, 65_536, 1 << 20, len(TEXT), 8 * len(PACKED)])
@pytest.mark.parametrize(
    ("data", "plain"),
    [
        (PACKED, TEXT),
        (PACKED + gzip.compress(b"second") + gzip.compress(b"") + PACKED, TEXT + b"second" + TEXT),
        (PACKED + bytes(300_000) + PACKED, TEXT + TEXT),
        (PACKED + bytes(300_000), TEXT),
        (PACKED + b"something else" + PACKED, TEXT),
        (PACKED + b"\x1f", TEXT),
        (gzip.compress(bytes(3_000_000)), bytes(3_000_000)),
    ],
    ids=["one", "members", "zeros between", "zeros behind", "junk behind", "half a magic", "highly packed"],
)
def test_whole_files_give_all_their_bytes(data: bytes, plain: bytes, size: int) -> None:
    assert unpacked(data, size) == (plain, None)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("cut", [1, 4, 8, 12, 1000])
def test_a_truncated_file_gives_what_can_be_unpacked(cut: int) -> None:
    plain, fault = unpacked(PACKED[:-cut], 65_536)
    assert fault is None
    assert TEXT.startswith(plain)
    assert len(TEXT) - 40 * cut < len(plain) <= len(TEXT)
    assert (len(plain) == len(TEXT)) == (cut <= 8), "the last 8 bytes only prove the others"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("at", "fault"),
    [(-8, "incorrect data check"), (-1, "incorrect length check"), (2, "unknown compression method")],
)
def test_damage_is_reported_after_the_data_before_it(at: int, fault: str) -> None:
    damaged = bytearray(PACKED)
    damaged[at] ^= 0x41
    assert unpacked(bytes(damaged), 65_536) == (TEXT if at < 0 else b"", fault)
    assert unpacked(PACKED + bytes(damaged), 65_536) == (TEXT * (2 if at < 0 else 1), fault)


@pytest.mark.slow
def test_isal_and_zlib_give_the_same_bytes_of_damaged_files(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("isal")
    rng = random.Random(5)
    files = [PACKED + gzip.compress(TEXT[: rng.randrange(1, 9000)], rng.randrange(10)) for _ in range(60)]
    files = [_flipped(data, rng, flips=1 + i % 3) for i, data in enumerate(files)]
    cuts = [_flipped(data, rng, flips=i % 2)[: rng.randrange(len(data))] for i, data in enumerate(files)]
    fast, fast_cuts = ([unpacked(data, 65_536) for data in chunks] for chunks in (files, cuts))
    monkeypatch.setattr(gzipped, "_import_isal", lambda: None)
    exact, exact_cuts = ([unpacked(data, 65_536) for data in chunks] for chunks in (files, cuts))
    assert fast == exact
    assert all(fault for _, fault in exact)
    for (plain, _), (same, _) in zip(fast_cuts, exact_cuts, strict=True):
        assert same.startswith(plain)
        assert len(plain) >= len(same) - 8, "isal keeps a symbol back where its next bits are missing"


def _flipped(data: bytes, rng: random.Random, flips: int) -> bytes:
    """With some bits behind the first header turned over."""
    damaged = bytearray(data)
    for _ in range(flips):
        damaged[rng.randrange(10, len(PACKED))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


@pytest.mark.usefixtures("engine")
def test_the_head_of_a_damaged_file_ends_at_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "f.json.gz"
    path.write_bytes(PACKED[:2000] + b"\xff" * 50)
    head = Source(path).head()
    assert TEXT.startswith(head[:-100]), "the last bytes may be the damage"
    assert 5_000 < len(head) < 65_536
    path.write_bytes(PACKED[:2] + b"\xff" * 50)
    with pytest.raises(SourceError, match=r"f\.json\.gz: damaged gzip data \(.*unknown compression method"):
        Source(path).head()


@pytest.mark.usefixtures("engine")
def test_unpacking_stops_at_the_maximum_size_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.source.ALWAYS_ALLOWED_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bytes(30 << 20)))
    bytes_read = 0
    with pytest.raises(SourceError, match=r"bomb\.json\.gz unpacks to over \d MiB from 30,"):  # noqa: PT012
        for piece in Source(path).chunks():
            bytes_read += len(piece)
    assert 4 << 20 < bytes_read < 7 << 20, "200 times the size on disk"


@pytest.mark.usefixtures("engine")
def test_the_progress_of_a_packed_file_is_that_of_the_bytes_on_disk(tmp_path: Path) -> None:
    path, seen = tmp_path / "f.json.gz", list[float]()
    path.write_bytes(PACKED)
    callers = set[threading.Thread]()
    source = Source(path, lambda done: (seen.append(done), callers.add(threading.current_thread()))[0])
    sizes = [len(piece) for piece in source.chunks(1 << 16)]
    assert sum(sizes) == len(TEXT)
    assert seen == sorted(seen)
    assert (len(seen), seen[0], seen[-1]) == (len(sizes), (1 << 13) / len(PACKED), 1.0)
    assert callers == {threading.current_thread()}, "who asked for the pieces hears of them"


def numbers(until: int, made: list[int]) -> Generator[int]:
    """1, 2, ... then a fault; notes what was made, and the end."""
    try:
        for i in range(1, until):
            made.append(i)
            yield i
        raise ValueError("fault")
    finally:
        made.append(0)


def test_pieces_are_made_ahead_in_order_and_a_fault_comes_last() -> None:
    made: list[int] = []
    pieces = gzipped.read_ahead(numbers(50, made))
    assert [next(pieces) for _ in range(1, 50)] == [*range(1, 50)]
    with pytest.raises(ValueError, match="fault"):
        next(pieces)
    assert made == [*range(1, 50), 0]


def test_stopping_early_ends_the_thread_and_closes_the_source() -> None:
    made: list[int] = []
    before = threading.active_count()
    pieces: Iterator[int] = gzipped.read_ahead(numbers(1_000_000, made))
    assert [next(pieces), next(pieces)] == [1, 2]
    assert threading.active_count() == before + 1
    del pieces
    assert threading.active_count() == before
    assert made[-1] == 0
    assert len(made) <= 2 + gzipped.MAX_READY_PIECES + 1, "no more than three wait"
