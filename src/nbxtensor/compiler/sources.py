"""What a pack was made from: a hash of the package's own files. Only the standard library is needed."""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
_MADE = (".nbxpack", ".pyc")


def sources_hash(package: Path = PACKAGE) -> str:
    """Hash of the names and contents of a package's files (hex), packs and bytecode aside."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*"), key=lambda p: p.relative_to(package).as_posix()):
        name = path.relative_to(package)
        if path.is_file() and "__pycache__" not in name.parts and path.suffix not in _MADE:
            digest.update(name.as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
