"""The file format of packs: round trip, damage, lies, bombs, mutations."""

import json
import os
import random
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nbxtensor.base.errors import PackError
from nbxtensor.compiler import pack_file
from nbxtensor.compiler.artifact_file import encode, header_of
from nbxtensor.compiler.pack_file import HEADER, Pack, canonical_json, pack_bytes, write_pack
from pack_tools import MANIFEST, TABLES, Crafted, crafted, fuzz, identity, item, items, read_all, small_pack
from test_store import make


def opened(tmp_path: Path, content: bytes) -> Pack:
    path = tmp_path / "a.nbxpack"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return Pack(path)


def refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "a.nbxpack"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    with pytest.raises(PackError) as caught:
        read_all(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_round_trip(tmp_path: Path):
    pack = opened(tmp_path, small_pack())
    assert pack.identities == sorted(identity(n) for n in range(3))
    for number in range(3):
        assert pack.find(identity(number)) == make(number, 700)
        assert pack.key_of(identity(number)) == make(number).key
    assert pack.manifest == MANIFEST
    assert pack.certificates() == TABLES
    assert sorted(a.key for a in pack.artifacts()) == [make(n).key for n in range(3)]
    read_all(pack.path)


@pytest.mark.parametrize("other", [identity(9), "00" * 32, "ff" * 32, "", "zz", identity(0)[:-2], identity(0) + "00"])
def test_what_is_not_there_is_not_found(tmp_path: Path, other: str):
    pack = opened(tmp_path, small_pack())
    assert pack.find(other) is None
    assert pack.key_of(other) is None


def test_an_empty_pack(tmp_path: Path):
    pack = opened(tmp_path, pack_bytes([], {}, {}))
    assert (pack.identities, pack.manifest, pack.certificates()) == ([], {}, {})
    assert pack.find(identity(0)) is None


def test_the_bytes_depend_on_the_content_alone():
    made = items(20)
    shuffled = random.Random(1).sample(made, len(made))
    tables = dict(reversed(TABLES.items()))
    manifest = dict(reversed(MANIFEST.items()))
    assert pack_bytes(made, MANIFEST, TABLES) == pack_bytes(shuffled, manifest, tables)


def test_what_cannot_be_packed():
    with pytest.raises(ValueError, match="one identity"):
        pack_bytes([item(1), item(1)], {}, {})
    with pytest.raises(ValueError, match="name"):
        pack_bytes([], {}, {"../up.json": b""})
    with pytest.raises(ValueError):
        pack_bytes([], {"x": float("nan")}, {})


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.nbxpack"
    assert write_pack(path, items(), MANIFEST, TABLES) == path.stat().st_size
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_pack(path, items(5), MANIFEST, TABLES)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == before


# Damage


def test_truncated_anywhere(tmp_path: Path):
    content = small_pack()
    pack = opened(tmp_path, content)
    index = HEADER.size + 3 * 64
    boundaries = {0, 1, 8, 12, 16, 24, 32, 64, HEADER.size, HEADER.size + 96, index, index + 5 * 32, *pack._offsets}
    cuts = {b + d for b in boundaries for d in (-1, 0, 1)} | set(range(0, len(content), 97))
    for cut in sorted(c for c in cuts if 0 <= c < len(content)):
        refused(tmp_path, content[:cut])
    for more in (b"\0", content):
        assert "cut off or has grown" in refused(tmp_path, content + more)


def test_every_flipped_bit_is_found(tmp_path: Path):
    content = pack_bytes(items(1), {"a": 1}, {"b": b"c"})
    for at in range(len(content)):
        broken = bytearray(content)
        broken[at] ^= 1 << (at % 8)
        refused(tmp_path, bytes(broken))


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 96, b"\x7fELF" + b"\0" * 500, b"PK\x03\x04" * 100])
def test_other_files(tmp_path: Path, content: bytes):
    refused(tmp_path, content)


def test_places_without_a_file(tmp_path: Path):
    for path in (tmp_path, tmp_path / "absent.nbxpack", tmp_path / "no" / "folder", Path("a\0b")):
        with pytest.raises(PackError, match="cannot read"):
            Pack(path)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(PackError):
        Pack(fifo)


# Lies with right checksums


def swap(part: Crafted, name: str, first: int, second: int) -> None:
    values = getattr(part, name)
    values[first], values[second] = values[second], values[first]


def offsets_of(part: Crafted) -> list[int]:
    at = HEADER.size + 3 * 64 + 5 * 44 + 8
    found = [at]
    for blob in part.blobs:
        found.append(found[-1] + len(blob))
    return found


def with_offsets(change: Callable[[list[int]], None]) -> Callable[[Crafted], None]:
    def apply(part: Crafted) -> None:
        part.offsets = offsets_of(part)
        change(part.offsets)

    return apply


def put(values: list[int], at: int, value: int) -> None:
    values[at] = value


LIES: dict[str, tuple[Callable[[Crafted], None], str]] = {
    "another format": (lambda p: setattr(p, "magic", b"NBXPACK\0"), "not a pack"),
    "a later version": (lambda p: setattr(p, "version", 2), "another version"),
    "version 0": (lambda p: setattr(p, "version", 0), "another version"),
    "a reserved field": (lambda p: setattr(p, "reserved", 1), "reserved"),
    "too long": (lambda p: setattr(p, "length", 10**9), "cut off"),
    "length 0": (lambda p: setattr(p, "length", 0), "grown"),
    "bytes at the end": (lambda p: setattr(p, "tail", b"more"), "do not follow"),
    "a gap": (lambda p: setattr(p, "gap", b"12345678"), "do not follow"),
    "more entries than there are": (lambda p: setattr(p, "entries", 4), "index is damaged"),
    "very many entries": (lambda p: setattr(p, "entries", 2**32 - 1), "impossible"),
    "entries out of order": (lambda p: swap(p, "identities", 0, 1), "ascend"),
    "an identity twice": (lambda p: p.identities.__setitem__(1, p.identities[0]), "ascend"),
    "overlapping entries": (with_offsets(lambda o: put(o, 1, o[0])), "do not follow"),
    "entries that go back": (with_offsets(lambda o: put(o, 2, o[0] + 1)), "do not follow"),
    "an entry over the header": (with_offsets(lambda o: put(o, 0, 0)), "do not follow"),
    "an entry beyond the end": (with_offsets(lambda o: put(o, 5, 2**63)), "do not follow"),
    "places that wrap": (with_offsets(lambda o: put(o, 3, 2**64 - 1)), "do not follow"),
    "a smaller size": (lambda p: put(p.sizes, 0, p.sizes[0] - 1), "does not have the size"),
    "a larger size": (lambda p: put(p.sizes, 1, p.sizes[1] + 1), "does not have the size"),
    "size 0": (lambda p: put(p.sizes, 2, 0), "does not have the size"),
    "an enormous size": (lambda p: put(p.sizes, 0, 2**32 - 1), "too large"),
    "a size that deflate cannot reach": (lambda p: put(p.sizes, 0, 2**25), "cannot have the size"),
    "a manifest of another size": (lambda p: put(p.sizes, 3, 5), "manifest does not have"),
    "certificates of another size": (lambda p: put(p.sizes, 4, 5), "certificates does not have"),
    "another key": (lambda p: swap(p, "keys", 0, 1), "another key"),
    "not deflated": (lambda p: p.blobs.__setitem__(0, b"\1" * 300), "cannot be inflated"),
    "a stream cut off": (lambda p: p.blobs.__setitem__(0, p.blobs[0][:-5]), "does not have the size"),
    "bytes behind a stream": (lambda p: p.blobs.__setitem__(0, p.blobs[0] + b"x"), "does not have the size"),
    "two streams": (lambda p: p.blobs.__setitem__(0, p.blobs[0] * 2), "does not have the size"),
    "a wrong checksum": (lambda p: setattr(p, "checksums", [b"\0" * 32] * 5), "is damaged"),
}


def test_the_crafted_pack_is_right(tmp_path: Path):
    assert crafted().content() == small_pack()


@pytest.mark.parametrize("lie", LIES)
def test_lies(tmp_path: Path, lie: str):
    change, words = LIES[lie]
    part = crafted()
    change(part)
    assert words in refused(tmp_path, part.content())


@pytest.mark.parametrize("at", [0, 3, 4])
def test_a_bomb_is_not_inflated(tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch):
    """A stream that makes a gigabyte of a megabyte stops at the size that the index declares."""
    maker = zlib.compressobj(9)
    bomb = b"".join(maker.compress(b"\0" * 2**20) for _ in range(256)) + maker.flush()
    part = crafted()
    part.blobs[at] = bomb
    part.sizes[at] = 100_000
    made: list[int] = []
    inflate = zlib.decompressobj

    class Watched:
        def __init__(self) -> None:
            self._inner = inflate()

        def decompress(self, *arguments: object) -> bytes:
            content = self._inner.decompress(*arguments)
            made.append(len(content))
            return content

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(pack_file.zlib, "decompressobj", Watched)
    assert "does not have the size" in refused(tmp_path, part.content())
    assert max(made) <= 100_001


def entry(**changes: object) -> bytes:
    header = json.dumps(header_of(make(0)) | changes).encode()
    return len(header).to_bytes(4, "little") + header + b"binary"


ENTRIES = {
    "nothing": b"",
    "three bytes": b"abc",
    "a header that is too long": (10**9).to_bytes(4, "little") + b"{}",
    "no header": bytes(4),
    "not JSON": (3).to_bytes(4, "little") + b"{,}",
    "not UTF-8": (3).to_bytes(4, "little") + b"\xff\xfe\xfd",
    "a list": (2).to_bytes(4, "little") + b"[]",
    "deeply nested": (10**5).to_bytes(4, "little") + b"[" * 10**5,
    "an endless number": (10**5).to_bytes(4, "little") + b"1" * 10**5,
    "no fields": (2).to_bytes(4, "little") + b"{}",
    "a key that is a number": entry(key=1),
    "a target of three parts": entry(target=["cuda", "sm_90", "x"]),
    "a target that is a number": entry(target=7),
    "a symbol that is null": entry(symbol=None),
    "a symbol with an escape": entry(symbol="\x1b[2J"),
    "a symbol that is half a character": entry(symbol="\ud800"),
    "a signature of numbers": entry(signature=[1, 2]),
    "options that are unknown": entry(options={"num_warps": 4, "num_stages": 3, "num_ctas": 2}),
    "options of texts": entry(options={"num_warps": "4", "num_stages": 3}),
    "resources below zero": entry(resources={"registers": -1, "stack_bytes": 0, "shared_bytes": 0}),
    "resources that are true": entry(resources={"registers": True, "stack_bytes": 0, "shared_bytes": 0}),
    "constants that are a list": entry(constants=[["a", 1]]),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_that_are_no_artifact(tmp_path: Path, name: str):
    part = crafted()
    part.blobs[1] = zlib.compress(ENTRIES[name])
    part.sizes[1] = len(ENTRIES[name])
    text = refused(tmp_path, part.content())
    assert "is malformed" in text or "cannot have the size" in text


MANIFESTS = [b"", b"[]", b"nul", b"\xff", b"[" * 10**5, b'"text"', b"1" * 10**5]


@pytest.mark.parametrize("number", range(len(MANIFESTS)))
def test_manifests_that_are_none(tmp_path: Path, number: int):
    part = crafted()
    part.blobs[3] = zlib.compress(MANIFESTS[number])
    part.sizes[3] = len(MANIFESTS[number])
    assert "manifest" in refused(tmp_path, part.content())


def table(name: bytes, content: bytes, size: int | None = None) -> bytes:
    return struct.pack("<II", len(name), len(content) if size is None else size) + name + content


CERTIFICATES = {
    "nothing": b"",
    "fewer than said": (2).to_bytes(4, "little") + table(b"a", b"b"),
    "more than said": (0).to_bytes(4, "little") + table(b"a", b"b"),
    "very many": b"\xff" * 4,
    "too long": (1).to_bytes(4, "little") + table(b"a", b"b", 2**32 - 1),
    "out of order": (2).to_bytes(4, "little") + table(b"b", b"") + table(b"a", b""),
    "one name twice": (2).to_bytes(4, "little") + table(b"a", b"") * 2,
    "no name": (1).to_bytes(4, "little") + table(b"", b"x"),
    "a way up": (1).to_bytes(4, "little") + table(b"../a", b"x"),
    "from the root": (1).to_bytes(4, "little") + table(b"/etc/passwd", b"x"),
    "a name that is not text": (1).to_bytes(4, "little") + table(b"\xff", b"x"),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_that_are_none(tmp_path: Path, name: str):
    part = crafted()
    part.blobs[4] = zlib.compress(CERTIFICATES[name])
    part.sizes[4] = len(CERTIFICATES[name])
    assert "certificates" in refused(tmp_path, part.content())


def test_damage_in_one_entry_leaves_the_others(tmp_path: Path):
    part = crafted()
    part.blobs[1] = zlib.compress(b"junk")
    part.sizes[1] = 4
    pack = opened(tmp_path, part.content())
    first, second, third = pack.identities
    assert pack.find(first)
    assert pack.find(third)
    with pytest.raises(PackError, match="kernel 1 is malformed"):
        pack.find(second)


def test_2000_mutations():
    outcomes = fuzz(2000, seed=20)
    assert sum(outcomes.values()) == 2000
    assert len(outcomes) > 12, outcomes
    assert 0 < outcomes["read"] < 600, outcomes


# Cost


def test_opening_and_finding_is_quick(tmp_path: Path):
    """Ten megabytes of kernels: two milliseconds to the first artifact."""
    rng = random.Random(3)
    base = make(0)
    many = [
        replace(item(0), identity=identity(n), artifact=replace(base, key=f"{n:064x}", binary=rng.randbytes(4500)))
        for n in range(2100)
    ]
    path = tmp_path / "large.nbxpack"
    assert 9_500_000 < write_pack(path, many, {}, {}) < 10_500_000
    best = 1.0
    for number in range(9):
        started = time.perf_counter()
        assert Pack(path).find(identity(number)) is not None
        best = min(best, time.perf_counter() - started)
    assert best < 0.002, f"{best * 1e3:.2f} ms"


def test_canonical_json():
    assert canonical_json({"b": [1, "é"], "a": None}) == b'{"a":null,"b":[1,"\\u00e9"]}'
    assert len(encode(make(0))) > 1000
