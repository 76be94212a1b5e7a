"""An artifact as bytes: a JSON header and the binary; and as one file, with magic and checksum before them.

``NBXART01 | sha256 of all that follows | header length, 4 bytes, little-endian | header | binary``
"""

import hashlib
import json
from typing import Any, cast

from nbxtensor.device.artifact import Artifact, Options, Resources, Target

MAGIC = b"NBXART01"
_CHECKSUM = 32
_PREFIX = len(MAGIC) + _CHECKSUM + 4


class CorruptArtifactError(ValueError):
    """The bytes are not an artifact: cut off, altered, or of another format."""


def header_of(artifact: Artifact) -> dict[str, Any]:
    """Everything of an artifact but its binary, as plain JSON values."""
    return {
        "key": artifact.key,
        "target": [artifact.target.kind, artifact.target.arch],
        "symbol": artifact.symbol,
        "signature": list(artifact.signature),
        "constants": dict(artifact.constants),
        "options": {"num_warps": artifact.options.num_warps, "num_stages": artifact.options.num_stages},
        "resources": {
            "registers": artifact.resources.registers,
            "stack_bytes": artifact.resources.stack_bytes,
            "shared_bytes": artifact.resources.shared_bytes,
        },
        "compiler": artifact.compiler,
    }


def encode(artifact: Artifact) -> bytes:
    """Header length, header and binary."""
    header = json.dumps(header_of(artifact), separators=(",", ":")).encode()
    return len(header).to_bytes(4, "little") + header + artifact.binary


def decode(body: bytes | memoryview) -> Artifact:
    """The artifact that `encode` wrote as `body`; `CorruptArtifactError` if it did not write that."""
    end = 4 + int.from_bytes(body[:4], "little")
    if len(body) < end or end == 4:
        raise CorruptArtifactError("the header is cut off")
    try:
        fields = cast("dict[str, Any]", json.loads(bytes(body[4:end])))
        kind, arch = fields["target"]
        artifact = Artifact(
            key=fields["key"],
            target=Target(kind, arch),
            symbol=fields["symbol"],
            signature=tuple(fields["signature"]),
            constants=fields["constants"],
            options=Options(**fields["options"]),
            resources=Resources(**fields["resources"]),
            compiler=fields["compiler"],
            binary=bytes(body[end:]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptArtifactError(f"the header does not parse ({error})") from error
    _check_types(artifact)
    return artifact


def _check_types(artifact: Artifact) -> None:
    target, options, resources = artifact.target, artifact.options, artifact.resources
    texts = (artifact.key, target.kind, target.arch, artifact.symbol, artifact.compiler, *artifact.signature)
    numbers = (
        *(options.num_warps, options.num_stages),
        *(resources.registers, resources.stack_bytes, resources.shared_bytes),
    )
    if not (
        all(type(text) is str and text.isascii() and text.isprintable() for text in texts)
        and all(type(number) is int and 0 <= number < 1 << 31 for number in numbers)
        and type(artifact.constants) is dict
    ):
        raise CorruptArtifactError("the header holds a value of the wrong type")


def dump(artifact: Artifact) -> bytes:
    """The file's content."""
    body = encode(artifact)
    return MAGIC + hashlib.sha256(body).digest() + body


def load(content: bytes) -> Artifact:
    """The artifact that `content` holds; `CorruptArtifactError` unless every byte is as it was written."""
    if len(content) < _PREFIX or content[: len(MAGIC)] != MAGIC:
        raise CorruptArtifactError("not an artifact")
    body = memoryview(content)[len(MAGIC) + _CHECKSUM :]
    if hashlib.sha256(body).digest() != content[len(MAGIC) : len(MAGIC) + _CHECKSUM]:
        raise CorruptArtifactError("the checksum does not match")
    return decode(body)
