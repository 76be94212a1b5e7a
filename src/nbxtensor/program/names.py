"""Names of calls -> functions: the operator table, and the views that every tensor has."""

from collections.abc import Callable
from typing import Any

from nbxtensor.base.errors import ModelError
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor

Slices = tuple[tuple[int | None, int | None, int], ...]


def slice_view(x: Tensor, slices: Slices) -> Tensor:
    """The view of `x` that takes one ``(start, stop, step)`` along each leading axis."""
    return x[tuple(slice(*s) for s in slices)]


OWN: dict[str, Callable[..., Any]] = {"slice_view": slice_view}


def is_known(name: str) -> bool:
    """Whether a call of `name` can run."""
    return name in OWN or name in table


def function(name: str) -> Callable[..., Any]:
    """The function that a call of `name` runs; `ModelError` if there is none."""
    found = OWN.get(name) or table.get(name)
    if found is None:
        raise ModelError("program", f"there is no operator {name}")
    return found
