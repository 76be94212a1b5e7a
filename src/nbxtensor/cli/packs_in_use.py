"""The packs in use, as `nbxtensor info` and `nbxtensor doctor` see them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nbxtensor.compiler import packs
from nbxtensor.device.artifact import Artifact


class OpenPack(Protocol):
    """What is looked at of a pack."""

    @property
    def path(self) -> Path: ...
    @property
    def manifest(self) -> Mapping[str, Any]: ...
    def artifacts(self) -> Iterator[Artifact]:
        """All kernels; an error if one is damaged."""
        ...


def packs_in_use() -> Sequence[OpenPack]:
    """The packs that launches look into, the first one first; an error if one of them cannot be read."""
    return packs.in_use()
