"""An artifact as one file: magic, checksum, JSON header, binary.

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


def dump(artifact: Artifact) -> bytes:
    """The file's content."""
    header = json.dumps(header_of(artifact), separators=(",", ":")).encode()
    body = len(header).to_bytes(4, "little") + header + artifact.binary
    return MAGIC + hashlib.sha256(body).digest() + body


def load(content: bytes) -> Artifact:
    """The artifact that `content` holds; `CorruptArtifactError` unless every byte is as it was written."""
    if len(content) < _PREFIX or content[: len(MAGIC)] != MAGIC:
        raise CorruptArtifactError("not an artifact")
    body = memoryview(content)[len(MAGIC) + _CHECKSUM :]
    if hashlib.sha256(body).digest() != content[len(MAGIC) : len(MAGIC) + _CHECKSUM]:
        raise CorruptArtifactError("the checksum does not match")
    end = 4 + int.from_bytes(body[:4], "little")
    try:
        fields = cast("dict[str, Any]", json.loads(bytes(body[4:end])))
        kind, arch = fields["target"]
        return Artifact(
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
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptArtifactError(f"the header does not parse ({error})") from error
