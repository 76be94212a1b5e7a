"""A linear layer: ``linear(x, weight, bias) = x @ weight.T + bias``.

Shapes
    x (..., in), weight (out, in), bias (out,): a result (..., out). Any strides.
Dtypes, errors, accuracy, guarantee
    Those of `matmul`; the bias is added last, with one more rounding.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nbxtensor.base.errors import ShapeError
from nbxtensor.kernel.declare import operator
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops._matmul_kernels import matmul_kernel
from nbxtensor.ops.matmul import matmul
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor


def reference(x: "np.ndarray[Any, Any]", weight: "np.ndarray[Any, Any]", bias: Any = None) -> Any:
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    return y if bias is None else y + bias


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield tuple(rng.standard_normal(s, np.float32) for s in ((2, 5, 33), (17, 33), (17,)))


@operator("linear", kernels=(matmul_kernel,), reference=reference, samples=samples)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer to the last axis.

    Parameters
    ----------
    weight
        Matrix (out, in).
    bias
        Vector (out,) or None.
    """
    for operand in (x, weight) if bias is None else (x, weight, bias):
        check_tensor("nn.linear", operand)
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        got = f"{weight.shape} and {None if bias is None else bias.shape}"
        raise ShapeError("nbx.nn.linear", "weight or bias do not fit", got=got, allowed="(out, in) and (out,)")
    y = matmul(x, weight.permute_dims(1, 0))
    return y if bias is None else table["add"](y, bias)
