"""What operands hold when a setting is proved: random, adversarial and special values."""

from typing import Any, TypeAlias, cast

import numpy as np

from nbxtensor.base.dtypes import DType
from nbxtensor.kernel.call_text import Example, Spec
from nbxtensor.kernel.declare import operators

Array: TypeAlias = np.ndarray[Any, Any]

RANDOM, ADVERSARIAL, SPECIAL = "random", "adversarial", "special"
FILLS = {
    "normal": RANDOM,
    "sorted": RANDOM,
    "reversed": RANDOM,
    "equal": RANDOM,
    "wide": ADVERSARIAL,
    "cancelling": ADVERSARIAL,
    "special": SPECIAL,
}
"""Kinds of content; results of random ones are held against the bound, those of all against the declared bits."""
_SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, 65504.0, 6e-8)
_INDEXING = {"take": 1, "take_along_axis": 1, "gather_nd": 1, "embedding": 0}
"""Operators one of whose operands holds indices, and which."""
_POSITIVE = frozenset(("sqrt", "rsqrt", "log", "pow"))
"""Operators that are given what lies in their domain where content is random."""
_PRODUCTS = frozenset(("prod", "cumulative_prod"))
"""Operators whose random content is near 1: long products leave the range of their dtype."""


def _floats(fill: str, shape: tuple[int, ...], rng: np.random.Generator, operator: str) -> Array:
    if fill == "equal":
        return np.full(shape, 0.999 if operator in _PRODUCTS else 0.7)
    if fill == "special":
        x = rng.standard_normal(shape)
        return np.where(rng.random(shape) < 1 / 16, rng.choice(_SPECIALS, shape), x)
    if fill == "wide":
        return rng.choice((-1.0, 1.0), shape) * np.exp2(rng.uniform(-140, 128, shape))
    x = rng.standard_normal(shape)
    if fill == "cancelling":  # sums whose terms cancel but for their order
        x *= np.exp2(rng.integers(-12, 13, shape))
        flat = x.reshape(-1)
        flat[1::2] = -flat[: flat.size // 2 * 2 : 2]
        return flat.reshape(shape)
    if operator in _POSITIVE:
        x = np.abs(x) + 0.01
    if operator in _PRODUCTS:
        return rng.choice((-1.0, 1.0), shape) * rng.uniform(0.9, 1.1, shape)
    if fill in ("sorted", "reversed"):
        x = np.sort(x, axis=-1) if x.ndim else x
        return x[..., ::-1] if fill == "reversed" and x.ndim else x
    return x


def _integers(fill: str, shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> Array:
    info = np.iinfo(dtype.numpy)
    if fill == "equal":
        return np.full(shape, 3, dtype.numpy)
    wide = fill in ("wide", "special", "cancelling")
    low, high = (int(info.min), int(info.max)) if wide else (max(int(info.min), -100), 100)
    x = rng.integers(low, high, shape, dtype.numpy, endpoint=True)
    if fill in ("sorted", "reversed"):
        x = np.sort(x, axis=-1) if x.ndim else x
        return x[..., ::-1] if fill == "reversed" and x.ndim else x
    return x


def _indices(example: Example, spec: Spec, shape: tuple[int, ...], fill: str, rng: np.random.Generator) -> Array:
    """Indices that fit: of either sign in random content."""
    at = _INDEXING[example.operator]
    x = example.specs[1 - at]
    axis = dict(example.attributes).get("axis")
    literal = [o for o in example.operands if isinstance(o, int)]
    axis = literal[0] if axis is None and literal and example.operator.startswith("take") else axis
    axis = -1 if axis is None and example.operator == "take_along_axis" else axis
    if example.operator == "embedding":
        size = x.shape[0]
    elif example.operator == "gather_nd":
        size = min(x.shape)
    else:
        size = x.size if axis is None else x.shape[axis]
    low = -size if spec.dtype.kind == "i" and fill == "normal" and example.operator != "embedding" else 0
    return rng.integers(low, size, shape).astype(spec.dtype.numpy)


def content(example: Example, fill: str, seed: int, most: int | None = None) -> list[Array]:
    """One array for each tensor of a call, of its shape and dtype.

    With `most` that is the memory of each instead, flat, whatever the strides; its content repeats after `most`
    elements.
    """
    at = _INDEXING.get(example.operator)
    arrays: list[Array] = []
    for position, spec in enumerate(example.specs):
        rng = np.random.default_rng([seed, position, sorted(FILLS).index(fill)])
        low, high = spec.span
        shape = spec.shape if most is None else (min(most, high - low),)
        if position == at:
            drawn = _indices(example, spec, shape, fill, rng)
        else:
            drawn = _drawn(example.operator, position, spec.dtype, shape, fill, rng)
        arrays.append(np.asarray(drawn) if most is None else np.resize(drawn, high - low))
    return arrays


def _drawn(
    operator: str, position: int, dtype: DType, shape: tuple[int, ...], fill: str, rng: np.random.Generator
) -> Array:
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.asarray(_floats(fill, shape, rng, operator), np.float64).astype(dtype.numpy)
    if dtype.is_bool:
        return np.asarray(rng.random(shape) < 0.5)
    if operator.endswith("shift") and position == 1:
        return rng.integers(0, 8 * dtype.itemsize, shape).astype(dtype.numpy)
    return _integers(fill, shape, dtype, rng)


def declared_specials(example: Example) -> Array | None:
    """The special values that the operator's file lists, where it takes one tensor of floats."""
    op = operators.get(example.operator)
    specs = example.specs
    if op is None or not op.special or len(specs) != 1 or not specs[0].dtype.is_float:
        return None
    values: list[float] = []
    for given, _ in op.special:
        values += cast("tuple[float, ...]", given) if isinstance(given, tuple) else (given,)
    with np.errstate(all="ignore"):
        return np.array([float(v) for v in values]).astype(specs[0].dtype.numpy)
