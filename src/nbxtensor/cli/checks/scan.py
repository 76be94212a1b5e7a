"""Reading through the kernel cache: damage, and the drivers that its kernels need."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from nbxtensor.cli.gpus import needed_cuda
from nbxtensor.compiler.store import ArtifactStore

SECONDS = 15.0
"""After so long the rest of a large cache is taken to be like what was read of it."""


@dataclass(slots=True)
class Scan:
    """What reading the entries of a store gave.

    Attributes
    ----------
    read
        Entries that were read; fewer than `entries` if that took too long.
    needed
        Architecture -> newest CUDA version that one of its kernels needs.
    """

    entries: int = 0
    nbytes: int = 0
    read: int = 0
    damaged: list[Path] = field(default_factory=list[Path])
    needed: dict[str, int] = field(default_factory=dict[str, int])


def scan_store(store: ArtifactStore, seconds: float = SECONDS) -> Scan:
    """Read the entries of a store, the most recently used first."""
    entries = store.entries()
    found = Scan(len(entries), sum(entry.nbytes for entry in entries))
    end = time.monotonic() + seconds
    for entry in entries:
        artifact = store.read(entry)
        found.read += 1
        if artifact is None or artifact.key != entry.path.stem:
            if entry.path.exists():  # another process may have dropped it meanwhile
                found.damaged.append(entry.path)
        elif artifact.target.kind == "cuda":
            arch = artifact.target.arch
            found.needed[arch] = max(found.needed.get(arch, 0), needed_cuda(artifact.binary))
        if time.monotonic() > end:
            break
    return found
