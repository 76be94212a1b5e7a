"""The file format of packs (``docs/pack-format.md``): many artifacts in one file that is read without unpacking it.

``header | index | entries | manifest | certificates``; the index is mapped and searched, entries are inflated one by
one. A pack holds native code and is trusted like a shared library: the checks here find damage, not malice. Whatever
the bytes are, reading them gives what was written or raises `PackError`.
"""

import errno
import hashlib
import json
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import ge
from pathlib import Path
from typing import Any, NoReturn, cast

from nbxtensor.base.errors import PackError
from nbxtensor.base.files import replace_file
from nbxtensor.compiler.artifact_file import CorruptArtifactError, decode, encode
from nbxtensor.device.artifact import Artifact

MAGIC = b"NBXPACK\x1a"
VERSION = 1
SUFFIX = ".nbxpack"
HEADER = struct.Struct("<8sIIQQ32s32s")  # magic, version, entries, size of the file, 0, checksums of index and header
_SUM = 32
_UNCHECKED = HEADER.size - _SUM
_BLOBS = 2  # the manifest and the certificates, after the entries
MAX_ENTRIES = 1 << 20
MAX_INFLATED = 1 << 26
_EXPANSION = 1032  # deflate cannot make more of a byte
_LEVEL = 9
FUNCTION = "pack"


def _index_size(entries: int) -> int:
    return entries * 2 * _SUM + (entries + _BLOBS) * (_SUM + 8 + 4) + 8


@dataclass(frozen=True, slots=True)
class Item:
    """What goes into a pack: an artifact and the identity of its job (hex)."""

    identity: str
    artifact: Artifact


# Writing


def _files(certificates: Mapping[str, bytes]) -> bytes:
    parts = [len(certificates).to_bytes(4, "little")]
    for name, content in sorted(certificates.items()):
        _check_name(name)
        encoded = name.encode()
        parts += [struct.pack("<II", len(encoded), len(content)), encoded, content]
    return b"".join(parts)


def _check_name(name: str) -> None:
    steps = name.split("/")
    if not (name.isascii() and name.isprintable()) or any(step in ("", ".", "..") for step in steps) or "\\" in name:
        raise ValueError(f"{name!r} is not the name of a certificate")


def canonical_json(value: object) -> bytes:
    """One text per value: sorted names, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def pack_bytes(items: Sequence[Item], manifest: Mapping[str, Any], certificates: Mapping[str, bytes]) -> bytes:
    """The content of a pack; the same for the same arguments, whatever their order.

    Parameters
    ----------
    manifest
        JSON values about the whole. Its list ``kernels``, if it has one, is in the order of the identities.
    certificates
        Name (``"sm_90/softmax.json"``) -> content of a table.
    """
    ordered = sorted(items, key=lambda item: item.identity)
    if any(a.identity == b.identity for a, b in pairwise(ordered)):
        raise ValueError("two items have one identity")
    contents = [encode(item.artifact) for item in ordered] + [canonical_json(manifest), _files(certificates)]
    if len(ordered) > MAX_ENTRIES or any(len(content) > MAX_INFLATED for content in contents):
        raise ValueError("more than a pack can hold")
    blobs = [zlib.compress(content, _LEVEL) for content in contents]
    at = HEADER.size + _index_size(len(ordered))
    offsets = [at]
    for blob in blobs:
        at += len(blob)
        offsets.append(at)
    index = b"".join(
        [
            *(bytes.fromhex(item.identity) for item in ordered),
            *(bytes.fromhex(item.artifact.key) for item in ordered),
            *(hashlib.sha256(blob).digest() for blob in blobs),
            struct.pack(f"<{len(offsets)}Q", *offsets),
            struct.pack(f"<{len(contents)}I", *map(len, contents)),
        ]
    )
    header = HEADER.pack(MAGIC, VERSION, len(ordered), at, 0, hashlib.sha256(index).digest(), b"")[:_UNCHECKED]
    return b"".join([header, hashlib.sha256(header).digest(), index, *blobs])


def write_pack(
    path: Path, items: Sequence[Item], manifest: Mapping[str, Any], certificates: Mapping[str, bytes]
) -> int:
    """Write a pack, whole or not at all (`replace_file`); gives its size."""
    content = pack_bytes(items, manifest, certificates)
    replace_file(path, content)
    return len(content)


# Reading


class Pack:
    """A pack that is open for reading.

    Parameters
    ----------
    path
        The file. While it is in use it must not be changed in place, as with a shared library: replace it by renaming.

    Raises
    ------
    PackError
        The file cannot be read, or its header or index is not what the format says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
            try:
                status = os.fstat(handle)
                self.nbytes = status.st_size
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "not a file")
                if self.nbytes < HEADER.size:
                    self._refuse(
                        "it is too short for a header", got=self.nbytes, allowed=f"{HEADER.size} bytes or more"
                    )
                self._map = mmap.mmap(handle, self.nbytes, access=mmap.ACCESS_READ)
            finally:
                os.close(handle)
        except PackError:
            raise
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise PackError(
                FUNCTION, f"cannot read {path}", got=reason, mend="name a file that nbxtensor pack made"
            ) from error
        self._certificates: dict[str, bytes] | None = None
        self._entries = self._open_header()
        self._offsets, self._sizes = self._open_index()

    def __repr__(self) -> str:
        return f"<Pack {self.path}: {self._entries} kernels>"

    def _refuse(
        self, problem: str, *, got: object = None, allowed: str = "", cause: Exception | None = None
    ) -> NoReturn:
        mend = "make it again with nbxtensor pack, or copy it again from where it is whole"
        raise PackError(FUNCTION, f"{self.path}: {problem}", got=got, allowed=allowed, mend=mend) from cause

    def _open_header(self) -> int:
        head = self._map[: HEADER.size]
        magic, version, entries, size, reserved, _, checksum = HEADER.unpack(head)
        if magic != MAGIC:
            self._refuse("not a pack", got=repr(magic), allowed=repr(MAGIC))
        if version != VERSION:
            self._refuse("the pack has another version of the format", got=version, allowed=str(VERSION))
        if hashlib.sha256(head[:_UNCHECKED]).digest() != checksum:
            self._refuse("the header is damaged: its checksum does not match")
        if reserved:
            self._refuse("the header has a reserved field that is not 0", got=reserved)
        if size != self.nbytes:
            self._refuse("the file is cut off or has grown", got=f"{self.nbytes} bytes", allowed=f"{size} bytes")
        if entries > MAX_ENTRIES or HEADER.size + _index_size(entries) > size:
            self._refuse("the number of kernels is impossible", got=entries)
        return entries

    def _open_index(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        entries = self._entries
        blobs = entries + _BLOBS
        end = HEADER.size + _index_size(entries)
        if hashlib.sha256(memoryview(self._map)[HEADER.size : end]).digest() != self._map[32:64]:
            self._refuse("the index is damaged: its checksum does not match")
        identities = self._map[HEADER.size : HEADER.size + entries * _SUM]
        rows = [identities[at : at + _SUM] for at in range(0, len(identities), _SUM)]
        if any(map(ge, rows, rows[1:])):
            self._refuse("the identities in the index do not ascend")
        at = HEADER.size + entries * 2 * _SUM + blobs * _SUM
        offsets = struct.unpack_from(f"<{blobs + 1}Q", self._map, at)
        sizes = struct.unpack_from(f"<{blobs}I", self._map, at + (blobs + 1) * 8)
        if offsets[0] != end or offsets[-1] != self.nbytes or any(map(ge, offsets, offsets[1:])):
            self._refuse("the places in the index do not follow each other from its end to the end of the file")
        if max(sizes) > MAX_INFLATED:
            self._refuse("a declared size is too large", got=max(sizes), allowed=f"at most {MAX_INFLATED}")
        return offsets, sizes

    def _row(self, column: int, number: int) -> bytes:
        at = HEADER.size + (column * self._entries + number) * _SUM
        return self._map[at : at + _SUM]

    def _search(self, identity: str) -> int | None:
        try:
            wanted = bytes.fromhex(identity)
        except ValueError:
            return None
        low, high = 0, self._entries
        while low < high:
            middle = (low + high) // 2
            if self._row(0, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < self._entries and self._row(0, low) == wanted else None

    def _inflated(self, number: int, what: str) -> bytes:
        """One blob: its checksum is compared first, and no more than its declared size is ever made of it."""
        stored = memoryview(self._map)[self._offsets[number] : self._offsets[number + 1]]
        size = self._sizes[number]
        if hashlib.sha256(stored).digest() != self._row(2, number):
            self._refuse(f"{what} is damaged: its checksum does not match")
        if size > len(stored) * _EXPANSION:
            self._refuse(f"{what} cannot have the size that it declares", got=size)
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(stored, size + 1)
        except zlib.error as error:
            self._refuse(f"{what} cannot be inflated", got=str(error), cause=error)
        if len(content) != size or not inflater.eof or inflater.unused_data:
            self._refuse(f"{what} does not have the size that it declares", allowed=f"{size} bytes")
        return content

    def _artifact(self, number: int) -> Artifact:
        what = f"kernel {number}"
        try:
            artifact = decode(self._inflated(number, what))
        except CorruptArtifactError as error:
            self._refuse(f"{what} is malformed: {error}", cause=error)
        if artifact.key != self._row(1, number).hex():
            self._refuse(f"{what} has another key than the index says", got=artifact.key)
        return artifact

    def find(self, identity: str) -> Artifact | None:
        """The artifact of the job with this identity (hex), or None; `PackError` if it is damaged."""
        number = self._search(identity)
        return None if number is None else self._artifact(number)

    def key_of(self, identity: str) -> str | None:
        """The key of the artifact that `find` would give; nothing is inflated."""
        number = self._search(identity)
        return None if number is None else self._row(1, number).hex()

    @property
    def identities(self) -> list[str]:
        """The identities of all kernels, ascending."""
        return [self._row(0, number).hex() for number in range(self._entries)]

    def stored_bytes(self, number: int) -> int:
        """Size that a kernel has in the file."""
        return self._offsets[number + 1] - self._offsets[number]

    def artifacts(self) -> Iterator[Artifact]:
        """All artifacts in the order of their identities; each is checked on the way."""
        return (self._artifact(number) for number in range(self._entries))

    @property
    def manifest(self) -> dict[str, Any]:
        """What the pack says about itself."""
        content = self._inflated(self._entries, "the manifest")
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            self._refuse("the manifest is not JSON", got=str(error), cause=error)
        if not isinstance(value, dict):
            self._refuse("the manifest is not an object", got=type(value).__name__)
        return cast("dict[str, Any]", value)

    def certificates(self) -> dict[str, bytes]:
        """The tables of certificates by name (``"sm_90/softmax.json"``)."""
        if self._certificates is None:
            self._certificates = self._read_certificates()
        return dict(self._certificates)

    def _read_certificates(self) -> dict[str, bytes]:
        content = self._inflated(self._entries + 1, "the part with certificates")
        found: dict[str, bytes] = {}
        try:
            (count,) = struct.unpack_from("<I", content)
            at, last = 4, ""
            for _ in range(count):
                name_size, size = struct.unpack_from("<II", content, at)
                name = content[at + 8 : at + 8 + name_size].decode("ascii")
                _check_name(name)
                at += 8 + name_size + size
                if at > len(content) or name <= last:
                    raise ValueError("names or sizes that cannot be")
                found[name] = content[at - size : at]
                last = name
            if at != len(content):
                raise ValueError("bytes at the end that belong to none")
        except (ValueError, struct.error) as error:
            self._refuse("the part with certificates is malformed", got=str(error), cause=error)
        return found
