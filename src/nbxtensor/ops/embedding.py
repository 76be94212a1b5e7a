"""Rows of a table by index: ``embedding(indices, weight) = weight[indices]``.

Shapes
    indices of any shape, weight (rows, width): a result (*indices.shape, width).
Dtypes, errors, guarantee
    Those of `take`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base.errors import ShapeError
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.gather import gather_kernel
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops.take import take
from nbxtensor.tensor.tensor import Tensor


def reference(indices: "np.ndarray[Any, Any]", weight: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return weight[indices]


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.integers(0, 50, (3, 7)), rng.standard_normal((50, 33), np.float32)


@operator("embedding", kernels=(gather_kernel,), reference=reference, samples=samples)
def embedding(indices: Tensor, weight: Tensor) -> Tensor:
    """Rows of `weight` at `indices`.

    Parameters
    ----------
    indices
        Integers of any shape. What is out of bounds is treated as by `take`.
    weight
        Matrix whose rows are looked up.
    """
    check_tensor("nn.embedding", indices)
    if check_tensor("nn.embedding", weight).ndim != 2:
        raise ShapeError("nbx.nn.embedding", "the weight is no matrix", got=weight.shape, allowed="(rows, width)")
    return take(weight, indices, axis=0)
