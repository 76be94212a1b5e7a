"""conv: values, order of the chain, bits that nothing but the operands decides, strides, special values, errors."""

from fractions import Fraction
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError, NbxError, ShapeError
from nbxtensor.device import get
from nbxtensor.device.null import NullDevice
from nbxtensor.ops import conv as op
from nbxtensor.ops._walk import LineTile
from numeric import same_bits

Array = np.ndarray[Any, np.dtype[Any]]
INF, NAN = np.inf, np.nan


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def run(device: str, *args: Any, **options: Any) -> Array:
    tensors = [nbx.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in args]
    return np.asarray(nbx.nn.conv(*tensors, **options).to_device("cpu"))


def with_settings(device: str, settings: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Array:
    x, w, bias = (nbx.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in args)
    full = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}
    return np.asarray(op._conv(x, w, bias, **full, settings=settings).to_device("cpu"))


def bound(x: Array, w: Array, bias: Array | None, options: dict[str, Any]) -> Array:
    """The promised largest error in float32."""
    sizes = op.conv_reference(np.abs(x), np.abs(w), None if bias is None else np.abs(bias), **options)
    return (513 + w[0].size / 512) * 2.0**-24 * sizes + 1e-44


def close(got: Array, x: Array, w: Array, bias: Array | None, options: dict[str, Any]) -> None:
    want = op.conv_reference(x, w, bias, **options)
    assert got.shape == want.shape
    assert (np.abs(got - want) <= bound(x, w, bias, options)).all()


def slow(x: Array, w: Array, stride: Any, before: Any, after: Any, dilation: Any, groups: int) -> Array:
    """Convolution by the formula, one product after the other."""
    rank = x.ndim - 2
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    places = [(x.shape[2 + i] + before[i] + after[i] - reach[i]) // stride[i] + 1 for i in range(rank)]
    out = np.zeros((x.shape[0], w.shape[0], *places))
    per = w.shape[1]
    for n, o, *p in np.ndindex(*out.shape):
        first = o // (w.shape[0] // groups) * per
        for c, *t in np.ndindex(*w.shape[1:]):
            at = [p[i] * stride[i] - before[i] + t[i] * dilation[i] for i in range(rank)]
            if all(0 <= at[i] < x.shape[2 + i] for i in range(rank)):
                out[(n, o, *p)] += float(x[(n, first + c, *at)]) * float(w[(o, c, *t)])
    return out


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_reference_is_the_formula(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(4):
        groups = int(rng.integers(1, 3))
        taps, stride, dilation, before, after = (
            tuple(int(v) for v in rng.integers(low, high, rank))
            for low, high in ((1, 4), (1, 3), (1, 3), (0, 3), (0, 3))
        )
        x = normal(rng, 2, 2 * groups, *(int(v) for v in rng.integers(5, 7, rank)))
        w = normal(rng, 3 * groups, 2, *taps)
        pads = tuple(zip(before, after, strict=True))
        got = op.conv_reference(x, w, None, stride, pads, dilation, groups)
        np.testing.assert_allclose(got, slow(x, w, stride, before, after, dilation, groups), atol=1e-12)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 20, 50), (24, 20, 5), {"padding": 2}),
        ((1, 256, 40), (64, 256, 5), {}),
        ((1, 300, 130), (70, 300, 3), {"padding": ((2, 0),)}),
        ((2, 33, 70), (17, 33, 1), {}),
        ((2, 33, 70), (17, 33, 1), {"stride": 3}),
        ((1, 16, 13, 13), (32, 16, 3, 3), {"padding": 1}),
        ((3, 3, 33, 35), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((2, 8, 20, 21), (12, 4, 3, 2), {"groups": 2, "dilation": (2, 3), "padding": ((0, 2), (3, 1))}),
        ((1, 40, 9, 9), (40, 40, 9, 9), {}),
        ((5, 48, 4, 4), (48, 48, 3, 3), {"padding": 1}),
        ((2, 30, 17, 40), (30, 1, 3, 3), {"groups": 30, "padding": 1, "stride": 2}),
        ((2, 30, 7, 7), (60, 1, 5, 5), {"groups": 30, "padding": 2}),
        ((1, 600, 21), (1, 600, 3), {"padding": 1}),
        ((2, 4, 5, 6, 7), (16, 4, 3, 2, 2), {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
        ((2, 2, 6, 6, 6), (2, 1, 2, 2, 2), {"groups": 2, "dilation": 2}),
        ((1, 8, 1, 1), (16, 8, 3, 3), {"padding": 1}),
        ((1, 8, 1, 30), (16, 8, 1, 5), {"padding": (0, 2)}),
        ((1, 4, 3), (8, 4, 2), {"padding": 9}),
        ((1, 1, 1), (1, 1, 1), {}),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_accuracy(x: Any, w: Any, options: dict[str, Any], biased: bool, device: str) -> None:
    rng = np.random.default_rng(len(w) + x[1])
    args = normal(rng, *x), normal(rng, *w), normal(rng, w[0]) if biased else None
    close(run(device, *args, **options), *args, options)


def test_random_shapes(device: str) -> None:
    """Every kernel is compiled for few kinds of shapes, so sizes vary while taps and settings repeat."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        rank = int(rng.integers(1, 3))
        groups = int(rng.choice([1, 1, 2]))
        taps = (3,) * rank
        options = {
            "stride": int(rng.integers(1, 3)),
            "padding": tuple((int(a), int(b)) for a, b in rng.integers(1, 4, (rank, 2))),
            "dilation": int(rng.integers(1, 3)),
            "groups": groups,
        }
        x = normal(rng, int(rng.integers(1, 4)), 16 * groups, *(int(v) for v in rng.integers(16, 40, rank)))
        w = normal(rng, 16 * groups, 16, *taps)
        close(run(device, x, w, None, **options), x, w, None, options)


def rounded(value: Fraction) -> np.float32:
    """`value` rounded to float32 once."""
    wide = np.float64(float(value))
    if Fraction(float(wide)) != value:  # to odd: the second rounding cannot meet a tie that is none
        if abs(Fraction(float(wide))) > abs(value):
            wide = np.nextafter(wide, 0.0)
        wide = (wide.view(np.int64) | 1).view(np.float64)
    return np.float32(wide)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 18, 20), (16, 18, 3), {"padding": 1}),
        ((1, 130, 5, 4), (8, 130, 3, 3), {"padding": 1}),
        ((1, 4, 9), (4, 1, 5), {"padding": 2, "groups": 4}),
        ((1, 600, 3), (2, 600, 1), {}),
    ],
)
def test_the_chain_is_as_stated(x: Any, w: Any, options: dict[str, Any], device: str) -> None:
    rng = np.random.default_rng(5)
    a, b, bias = normal(rng, *x), normal(rng, *w), normal(rng, w[0])
    got = run(device, a, b, bias, **options)
    pad = options.get("padding", 0)
    padded = np.pad(a, ((0, 0), (0, 0), *(((pad, pad),) * (a.ndim - 2))))
    per = w[0] // options.get("groups", 1)
    for o, at in product((0, w[0] - 1), (0, 1)):
        place = (0,) * (a.ndim - 3) + (at,)
        first = o // per * w[1]
        cut = padded[(0, slice(first, first + w[1]), *(slice(p, p + t) for p, t in zip(place, w[2:], strict=True)))]
        total = np.float32(0)
        pairs = list(zip(b[o].reshape(-1), cut.reshape(-1), strict=True))
        for begin in range(0, len(pairs), 512):
            acc = np.float32(0)
            for u, v in pairs[begin : begin + 512]:
                acc = rounded(Fraction(float(u)) * Fraction(float(v)) + Fraction(float(acc)))
            total = np.float32(total + acc)
        assert got[(0, o, *place)] == np.float32(total + bias[o])


SETTINGS = [
    op.Tile(16, 16, 16, True, 4),
    op.Tile(64, 32, 32, True, 4),
    op.Tile(32, 64, 64, True, 4),
    op.Tile(16, 16, 32, False, 1),
    op.Tile(64, 64, 16, False, 4),
    LineTile(16, 16, 4),
    LineTile(1, 64, 1),
]


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 60, 40), (24, 60, 5), {"padding": ((1, 3),)}),
        ((3, 70, 6, 18), (20, 70, 3, 3), {"padding": 1, "dilation": (1, 2)}),
        ((2, 6, 11, 17), (66, 3, 3, 3), {"groups": 2, "stride": (2, 1)}),
    ],
)
def test_settings_do_not_change_a_bit(x: Any, w: Any, options: dict[str, Any], device: str) -> None:
    rng = np.random.default_rng(2)
    args = normal(rng, *x), normal(rng, *w), normal(rng, w[0])
    want = run(device, *args, **options)
    for settings in (*SETTINGS[:2], *SETTINGS[3:]) if "stride" in options else SETTINGS[1:]:
        assert same_bits(with_settings(device, settings, args, options), want), settings


def test_the_bits_are_those_of_the_product(device: str) -> None:
    rng = np.random.default_rng(10)
    x, w = normal(rng, 1, 130, 30), normal(rng, 20, 130, 5)
    seen = np.lib.stride_tricks.sliding_window_view(x[0], 5, axis=1).transpose(0, 2, 1)
    columns = np.ascontiguousarray(seen.reshape(650, 26))
    product = nbx.matmul(nbx.asarray(w.reshape(20, 650), device=device), nbx.asarray(columns, device=device))
    assert same_bits(run(device, x, w)[0], np.asarray(product.to_device("cpu")))


def test_batch_and_channels_do_not_change_a_bit(device: str) -> None:
    rng = np.random.default_rng(3)
    for x, w, options in (
        ((7, 40, 30), (48, 40, 3), {"padding": 1}),
        ((7, 40, 7, 7), (48, 40, 3, 3), {"padding": 1}),
        ((7, 32, 9, 9), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
    ):
        a, b = normal(rng, *x), normal(rng, *w)
        want = run(device, a, b, None, **options)
        for rows in (slice(0, 1), slice(2, 5)):
            assert same_bits(run(device, a[rows], b, None, **options), want[rows])
        if "groups" not in options:
            for channels in (slice(0, 1), slice(3, 20)):
                assert same_bits(run(device, a, b[channels], None, **options), want[:, channels])


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [((2, 24, 19, 21), (20, 24, 3, 3), {"padding": 1}), ((2, 20, 9, 21), (20, 1, 3, 3), {"padding": 1, "groups": 20})],
)
def test_strided_operands_are_read_in_place(x: Any, w: Any, options: dict[str, Any], device: str) -> None:
    rng = np.random.default_rng(4)
    a, b, bias = normal(rng, *x), normal(rng, *w), normal(rng, w[0])
    want = run(device, a, b, bias, **options)

    def last(t: Array) -> nbx.Tensor:
        """Channels last in memory."""
        return nbx.permute_dims(nbx.asarray(np.ascontiguousarray(np.moveaxis(t, 1, -1)), device=device), (0, 3, 1, 2))

    def sparse(t: Array) -> nbx.Tensor:
        """Every second element of every axis, the last one backwards."""
        wide = np.full([2 * n for n in t.shape], NAN, np.float32)
        wide[(..., *(slice(None, None, 2) for _ in range(t.ndim)))] = t[..., ::-1]
        view = nbx.asarray(wide, device=device)[tuple(slice(None, None, 2) for _ in range(t.ndim))]
        return view[..., ::-1]

    for xs, ws, bs in ((last(a), b, bias), (sparse(a), sparse(b), sparse(bias)), (a, last(b), bias)):
        assert same_bits(run(device, xs, ws, bs, **options), want)
    wide = nbx.asarray(a[:1, :, :, :1], device=device).broadcast_to(a.shape)
    assert not wide.is_contiguous
    whole = np.ascontiguousarray(np.broadcast_to(a[:1, :, :, :1], a.shape))
    assert same_bits(run(device, wide, b, bias, **options), run(device, whole, b, bias, **options))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("w", "groups"), [((24, 40, 3, 3), 1), ((40, 1, 3, 3), 40)])
def test_16_bit_is_rounded_once(dtype: Any, w: Any, groups: int, device: str) -> None:
    rng = np.random.default_rng(6)
    x, k, bias = (normal(rng, *s).astype(dtype) for s in ((2, 40, 9, 18), w, (w[0],)))
    options = {"padding": 1, "groups": groups}
    wide = run(device, *(a.astype(np.float32) for a in (x, k, bias)), **options)
    assert same_bits(run(device, x, k, bias, **options), wide.astype(dtype))
    mixed = run(device, x, k.astype(np.float32), None, **options)
    assert mixed.dtype == np.float32
    assert same_bits(mixed, run(device, x.astype(np.float32), k.astype(np.float32), None, **options))


def test_float64(device: str) -> None:
    rng = np.random.default_rng(7)
    x, w, bias = rng.standard_normal((2, 70, 11)), rng.standard_normal((20, 70, 9)), rng.standard_normal(20)
    got = run(device, x, w, bias, padding=4)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, op.conv_reference(x, w, bias, 1, 4), rtol=0, atol=1e-11)


@pytest.mark.parametrize("o", [1, 16])
def test_special_values(o: int, device: str) -> None:
    x = np.ones((1, 1, 8), np.float32)
    w = np.ones((o, 1, 3), np.float32)
    x[0, 0, 3] = NAN
    got = run(device, x, w)
    np.testing.assert_array_equal(np.isnan(got), np.broadcast_to([0, 1, 1, 1, 0, 0], got.shape))
    x[0, 0, 3] = INF
    np.testing.assert_array_equal(run(device, x, w)[0], np.broadcast_to([3, INF, INF, INF, 3, 3], (o, 6)))
    got = run(device, np.ones((1, 1, 4), np.float32), np.full((o, 1, 2), INF, np.float32), padding=1)
    np.testing.assert_array_equal(got[0], np.broadcast_to([NAN, INF, INF, INF, NAN], (o, 5)))
    zero = run(device, np.full((1, 1, 4), -0.0, np.float32), w)
    assert same_bits(zero, np.zeros_like(zero))
    tiny = np.full((1, 1, 8), -1e-40, np.float32)  # products below the smallest float: no sign is left
    assert same_bits(run(device, tiny, np.full((o, 1, 3), 1e-10, np.float32)), np.zeros((1, o, 6), np.float32))


def test_empty(device: str) -> None:
    rng = np.random.default_rng(8)
    assert run(device, normal(rng, 0, 4, 9), normal(rng, 5, 4, 3)).shape == (0, 5, 7)
    assert run(device, normal(rng, 2, 4, 9), normal(rng, 0, 4, 3)).shape == (2, 0, 7)
    bias = normal(rng, 20)
    for o in (2, 20):
        got = run(device, normal(rng, 2, 0, 9), normal(rng, o, 0, 3), bias[:o])
        assert same_bits(got, np.ascontiguousarray(np.broadcast_to(bias[:o, None], (2, o, 7))))


@pytest.mark.parametrize(
    ("x", "w", "options", "error"),
    [
        ((4, 9), (5, 4, 3), {}, ShapeError),
        ((1, 2, 3, 4, 5, 6), (1, 2, 1, 1, 1, 1), {}, ShapeError),
        ((1, 4, 9), (5, 4, 3, 3), {}, ShapeError),
        ((1, 4, 9), (5, 3, 3), {}, ShapeError),
        ((1, 4, 9), (5, 4, 0), {}, ShapeError),
        ((1, 4, 9), (5, 4, 10), {}, ShapeError),
        ((1, 4, 9), (5, 4, 5), {"dilation": 3}, ShapeError),
        ((1, 4, 0), (5, 4, 1), {}, ShapeError),
        ((1, 4, 9), (5, 2, 3), {"groups": 2}, ArgumentError),
        ((1, 3, 9), (4, 1, 3), {"groups": 2}, ArgumentError),
        ((1, 4, 9), (4, 4, 3), {"groups": 2}, ShapeError),
        ((1, 4, 9), (5, 4, 3), {"groups": 0}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"groups": 1.0}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"stride": 0}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"stride": 1.5}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"stride": (1, 1)}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"dilation": 0}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"padding": -1}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"padding": (1, 1)}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"padding": ((1, 1, 1),)}, ArgumentError),
        ((1, 4, 9), (5, 4, 3), {"padding": "same"}, ArgumentError),
    ],
)
def test_bad_arguments(x: Any, w: Any, options: dict[str, Any], error: type[NbxError], device: str) -> None:
    rng = np.random.default_rng(9)
    with pytest.raises(error) as caught:
        run(device, normal(rng, *x), normal(rng, *w), **options)
    assert "nbx.nn.conv" in str(caught.value)


def test_bad_operands(device: str) -> None:
    x, w = nbx.ones((1, 4, 9), device=device), nbx.ones((5, 4, 3), device=device)
    with pytest.raises(ShapeError):
        nbx.nn.conv(x, w, nbx.ones((4,), device=device))
    with pytest.raises(ArgumentError):
        nbx.nn.conv(np.ones((1, 4, 9)), w)  # type: ignore[arg-type]
    with pytest.raises(DTypeError):
        nbx.nn.conv(nbx.astype(x, nbx.int32), nbx.astype(w, nbx.int32))
    null = NullDevice(get("cpu").target)
    with pytest.raises(DeviceError):
        nbx.nn.conv(x, nbx.empty((5, 4, 3), nbx.float32, null))


def test_null_device_records_the_launches() -> None:
    null = NullDevice(get("cpu").target)
    x, w = (nbx.empty(s, nbx.float32, null) for s in ((2, 8, 30), (16, 8, 3)))
    before = len(null.calls)
    assert nbx.nn.conv(x, w, padding=1).shape == (2, 16, 30)
    assert [c.name for c in null.calls[before:]] == ["conv", "conv"]
