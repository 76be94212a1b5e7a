"""Packs for tests, and packs with one thing wrong whose checksums are right.

As a program: reads many mutations of a pack and tells what came of them.

    PYTHONPATH=src:tests python tests/pack_tools.py 100000
"""

import hashlib
import random
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nbxtensor.base.errors import PackError
from nbxtensor.compiler.artifact_file import encode
from nbxtensor.compiler.pack_file import HEADER, MAGIC, VERSION, Item, Pack, pack_bytes
from nbxtensor.device.artifact import Artifact
from test_store import make

MANIFEST = {"library": "0", "kernels": [{"name": "a.b", "arch": "sm_90", "from": [0]}] * 3, "origins": ["x"]}
TABLES = {"sm_90/softmax.json": b'{"a": 1}\n', "sm_90/sort.json": b"", "x86-64-v3/softmax.json": bytes(range(256))}


def identity(number: int) -> str:
    return hashlib.sha256(f"identity {number}".encode()).hexdigest()


def item(number: int, size: int = 700) -> Item:
    return Item(identity(number), make(number, size))


def items(count: int = 3) -> list[Item]:
    return [item(number) for number in range(count)]


def small_pack() -> bytes:
    return pack_bytes(items(), MANIFEST, TABLES)


@dataclass
class Crafted:
    """A pack in parts, each of which may be changed before it is put together with checksums that are right."""

    identities: list[bytes]
    keys: list[bytes]
    blobs: list[bytes]
    sizes: list[int]
    offsets: list[int] | None = None
    checksums: list[bytes] | None = None
    magic: bytes = MAGIC
    version: int = VERSION
    entries: int | None = None
    length: int | None = None
    reserved: int = 0
    tail: bytes = b""
    gap: bytes = field(default=b"")

    def content(self) -> bytes:
        count = len(self.identities)
        at = HEADER.size + count * 64 + (count + 2) * 44 + 8
        offsets = [at + len(self.gap)]
        for blob in self.blobs:
            offsets.append(offsets[-1] + len(blob))
        checksums = self.checksums or [hashlib.sha256(blob).digest() for blob in self.blobs]
        offsets = self.offsets or offsets
        index = b"".join(
            [
                *(*self.identities, *self.keys, *checksums),
                struct.pack(f"<{len(offsets)}Q", *offsets),
                struct.pack(f"<{len(self.sizes)}I", *self.sizes),
            ]
        )
        body = self.gap + b"".join(self.blobs) + self.tail
        length = HEADER.size + len(index) + len(body) if self.length is None else self.length
        entries = count if self.entries is None else self.entries
        digest = hashlib.sha256(index).digest()
        head = HEADER.pack(self.magic, self.version, entries, length, self.reserved, digest, b"")[:-32]
        return head + hashlib.sha256(head).digest() + index + body


def crafted(contents: Sequence[bytes] | None = None, artifacts: Sequence[Artifact] | None = None) -> Crafted:
    """The small pack in parts; `contents` are instead what its five parts inflate to."""
    made = sorted(items(), key=lambda i: i.identity)
    if artifacts is not None:
        made = [replace(i, artifact=a) for i, a in zip(made, artifacts, strict=True)]
    whole = small_pack()
    parts = [encode(i.artifact) for i in made]
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.nbxpack")
        path.write_bytes(whole)
        pack = Pack(path)
        parts += [pack._inflated(3, "manifest"), pack._inflated(4, "certificates")]
    parts = [*parts] if contents is None else [*contents]
    return Crafted(
        [bytes.fromhex(i.identity) for i in made],
        [bytes.fromhex(i.artifact.key) for i in made],
        [zlib.compress(part, 9) for part in parts],
        [len(part) for part in parts],
    )


def read_all(path: Path) -> None:
    """Everything that a reader can ask of a pack."""
    pack = Pack(path)
    names = pack.identities
    for name in [*names, identity(0), "00" * 32, "ff" * 32]:
        pack.key_of(name)
        pack.find(name)
    for number in range(len(pack.identities)):
        pack.stored_bytes(number)
    assert isinstance(pack.manifest, dict)
    assert isinstance(pack.certificates(), dict)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """`content` with one to four changes: bytes altered, removed, added, moved; often where structure is."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        end = len(changed)
        at = rng.randrange(min(end, HEADER.size + 600)) if rng.random() < 0.6 else rng.randrange(end)
        match rng.randrange(7):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                changed[at : at + 8] = rng.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, end)).to_bytes(8, "little")
            case 3:
                del changed[at : at + rng.choice((1, 2, 32, 200))]
            case 4:
                changed[at:at] = rng.randbytes(rng.choice((1, 2, 32, 200)))
            case 5:
                other = rng.randrange(end)
                changed[at : at + 32] = changed[other : other + 32]
            case _:
                del changed[at:]
        if not changed:
            return b""
    return bytes(changed)


def mended(content: bytes) -> bytes:
    """`content` with the checksums of header, index and parts made right, as far as there are such things."""
    if len(content) < HEADER.size:
        return content
    fixed = bytearray(content)
    entries = int.from_bytes(fixed[12:16], "little")
    end = HEADER.size + entries * 64 + (entries + 2) * 44 + 8
    if end <= len(fixed):
        table = HEADER.size + entries * 64
        offsets = struct.unpack_from(f"<{entries + 3}Q", fixed, table + (entries + 2) * 32)
        for number in range(entries + 2):
            digest = hashlib.sha256(bytes(fixed[offsets[number] : offsets[number + 1]])).digest()
            fixed[table + number * 32 : table + number * 32 + 32] = digest
        fixed[32:64] = hashlib.sha256(fixed[HEADER.size : end]).digest()
    fixed[16:24] = len(fixed).to_bytes(8, "little")
    fixed[64:96] = hashlib.sha256(fixed[:64]).digest()
    return bytes(fixed)


def altered_inside(rng: random.Random) -> bytes:
    """A pack that is right but for what one of its parts inflates to."""
    part = crafted()
    number = rng.randrange(len(part.blobs))
    content = mutated(zlib.decompress(part.blobs[number]), rng)
    part.blobs[number], part.sizes[number] = zlib.compress(content), len(content)
    return part.content()


def fuzz(count: int, seed: int = 0) -> Counter[str]:
    """Read `count` mutations; what is refused is counted by the words of the error, anything else raises."""
    outcomes: Counter[str] = Counter()
    rng = random.Random(seed)
    sources = [small_pack(), pack_bytes([], {}, {}), pack_bytes(items(1), {"a": [1]}, TABLES)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "mutated.nbxpack")
        for number in range(count):
            content = mutated(sources[number % len(sources)], rng) if number % 3 else altered_inside(rng)
            if number % 3 == 1:
                content = mended(content)
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            try:
                read_all(path)
                outcomes["read"] += 1
            except PackError as error:
                outcomes[error.problem.removeprefix(f"{path}: ").split(":")[0].strip("0123456789 ")] += 1
    return outcomes


if __name__ == "__main__":
    total = int(sys.argv[1])
    found = fuzz(total, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for words, times in found.most_common():
        print(f"{times:8d}  {words}")
    print(f"{total} mutations: each was read or refused with PackError")
