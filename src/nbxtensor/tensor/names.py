"""Names of calls -> functions: the operator table, and the views that every tensor has."""

from collections.abc import Callable
from typing import Any

from nbxtensor.tensor.dispatch import OperatorError, table
from nbxtensor.tensor.tensor import Tensor

Ints = tuple[int, ...]
Slices = tuple[tuple[int | None, int | None, int], ...]


def slice_view(x: Tensor, slices: Slices) -> Tensor:
    """The view of `x` that takes one ``(start, stop, step)`` along each leading axis."""
    return x[tuple(slice(*s) for s in slices)]


def reshape(x: Tensor, shape: Ints) -> Tensor:
    """`x` in another shape: a view where the layout allows it, else a copy."""
    return x.reshape(shape)


def permute_dims(x: Tensor, axes: Ints) -> Tensor:
    """The view of `x` with its axes in another order."""
    return x.permute_dims(axes)


def broadcast_to(x: Tensor, shape: Ints) -> Tensor:
    """The view of `x` that repeats it along axes of size 1."""
    return x.broadcast_to(shape)


VIEWS: dict[str, Callable[..., Any]] = {
    "slice_view": slice_view,
    "reshape": reshape,
    "permute_dims": permute_dims,
    "broadcast_to": broadcast_to,
}


def is_known(name: str) -> bool:
    """Whether a call of `name` can run."""
    try:
        function(name)
    except OperatorError:
        return False
    return True


def function(name: str) -> Callable[..., Any]:
    """The function that a call of `name` runs; `OperatorError` if there is none."""
    return VIEWS[name] if name in VIEWS else table[name]
