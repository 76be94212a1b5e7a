"""layer_norm and rms_norm."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import AxisError, DTypeError, ShapeError
from nbxtensor.ops import layer_norm as op
from rows_helpers import bits, canonical_sum, layouts

RNG = np.random.default_rng(0)
F = np.float32


def _expected(x: np.ndarray[Any, Any], centre: bool, eps: float = 1e-5) -> np.ndarray[Any, Any]:
    """The definition in float32, step by step as the kernel takes them."""
    n = F(x.shape[-1])
    mean = (canonical_sum(x) / n if centre else np.zeros(x.shape[:-1], F))[..., None]
    variance = canonical_sum((x - mean) * (x - mean)) / n
    scale = F(1) / np.sqrt(variance + F(eps))
    return (x - mean) * scale[..., None]


@pytest.mark.parametrize("n", [1, 384, 2050, 70_000])
def test_bits_follow_the_definition_in_every_kernel(n: int, device: str) -> None:
    x = (RNG.standard_normal((3, n)) * 3 + 1).astype(F)
    t = nbx.asarray(x, device=device)
    for name, function in (("layer_norm", nbx.nn.layer_norm), ("rms_norm", nbx.nn.rms_norm)):
        want = _expected(x, name == "layer_norm")
        np.testing.assert_array_equal(bits(function(t)), bits(want))
        np.testing.assert_array_equal(bits(op.run(name, t, None, None, -1, 1e-5, True)), bits(want))
        if n <= 5000:
            np.testing.assert_array_equal(bits(op.run(name, t, None, None, -1, 1e-5, False)), bits(want))
        np.testing.assert_array_equal(bits(function(t[1])), bits(want[1]))


def test_weight_and_bias(device: str) -> None:
    x = (RNG.standard_normal((4, 5, 300)) * 3 + 1).astype(F)
    w, b = (RNG.standard_normal(300).astype(F) for _ in range(2))
    t, tw, tb = (nbx.asarray(v, device=device) for v in (x, w, b))
    plain = _expected(x, True)
    fused = (plain.astype(np.longdouble) * w + b).astype(F)
    np.testing.assert_array_equal(bits(nbx.nn.layer_norm(t, tw)), bits(plain * w))
    np.testing.assert_array_equal(bits(nbx.nn.layer_norm(t, None, tb)), bits(plain + b))
    np.testing.assert_allclose(nbx.nn.layer_norm(t, tw, tb).numpy(), fused, rtol=0, atol=1e-6)
    strided = nbx.asarray(np.repeat(w, 2), device=device)[::2]
    np.testing.assert_array_equal(bits(nbx.nn.layer_norm(t, strided)), bits(plain * w))
    np.testing.assert_array_equal(bits(nbx.nn.rms_norm(t, tw)), bits(_expected(x, False) * w))


@pytest.mark.parametrize("axis", [0, 1, -1, (1, 2), (0, 2), (0, 1, 2)])
def test_every_axis_and_layout_gives_the_same_bits(axis: Any, device: str) -> None:
    x = RNG.standard_normal((4, 5, 6)).astype(F)
    axes = tuple(sorted(d % 3 for d in ((axis,) if isinstance(axis, int) else axis)))
    kept = tuple(d for d in range(3) if d not in axes)
    moved = x.transpose((*kept, *axes))
    rows = _expected(np.ascontiguousarray(moved).reshape(*(x.shape[d] for d in kept), -1), True)
    want = rows.reshape(moved.shape).transpose(np.argsort((*kept, *axes)))
    w = RNG.standard_normal([x.shape[d] for d in axes]).astype(F)
    spread = w.reshape([x.shape[d] if d in axes else 1 for d in range(3)])
    for name, t in layouts(x, device) if axis in (0, -1) else ():
        np.testing.assert_array_equal(bits(nbx.nn.layer_norm(t, axis=axis)), bits(want), err_msg=name)
    got = nbx.nn.layer_norm(nbx.asarray(x, device=device), nbx.asarray(w, device=device), axis=axis)
    np.testing.assert_array_equal(bits(got), bits(want * spread))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_accuracy(scale: float, device: str) -> None:
    x = (RNG.standard_normal((50, 768)) * scale).astype(F)
    w, b = (RNG.standard_normal(768).astype(F) for _ in range(2))
    got = nbx.nn.layer_norm(*(nbx.asarray(v, device=device) for v in (x, w, b))).numpy()
    want = op.reference_layer_norm(x, w, b)
    wide = x.astype(np.float64)
    size = (np.abs(wide) + np.abs(wide).mean(axis=1, keepdims=True)) / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    assert np.max(np.abs(got - want) / (size * np.abs(w) + np.abs(b))) <= 4 * 2.0**-23


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_rows(dtype: str, device: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = RNG.standard_normal((3, 100)).astype(kind)
    want = _expected(x.astype(F), True).astype(kind)
    got = nbx.nn.layer_norm(nbx.asarray(x, device=device))
    assert got.dtype.name == dtype
    np.testing.assert_array_equal(bits(got), bits(want))


def test_special_values(device: str) -> None:
    x = np.array([[1.0, 1.0, 1.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], [0.0, -0.0, 0.0]], F)
    got = nbx.nn.layer_norm(nbx.asarray(x, device=device)).numpy()
    assert (got[0] == 0).all()
    assert np.isnan(got[1:3]).all()
    assert (got[3] == 0).all()
    assert nbx.nn.layer_norm(nbx.asarray(np.zeros((0, 3), F), device=device)).shape == (0, 3)
    assert nbx.nn.layer_norm(nbx.asarray(np.zeros((3, 0), F), device=device)).shape == (3, 0)


def test_errors() -> None:
    t = nbx.asarray(np.zeros((2, 3), F))
    with pytest.raises(ShapeError):
        nbx.nn.layer_norm(t, nbx.asarray(np.zeros(4, F)))
    with pytest.raises(DTypeError):
        nbx.nn.layer_norm(nbx.asarray([[1, 2]]))
    with pytest.raises(AxisError):
        nbx.nn.layer_norm(t, axis=2)
    with pytest.raises(AxisError):
        nbx.nn.layer_norm(t, axis=())
