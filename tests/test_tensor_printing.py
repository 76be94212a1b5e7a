import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from tensor_ops import install


@pytest.fixture(autouse=True)
def ops(monkeypatch, device):
    install(monkeypatch, device)


CASES = [
    np.array(2.5, np.float32),
    np.arange(6, dtype=np.float64).reshape(2, 3) / 3,
    np.array([True, False]),
    np.array([1e-10, 1e10, np.nan, -np.inf, -0.0], np.float32),
    np.arange(5, dtype=np.uint8),
    np.zeros((2, 2, 2), np.int16),
    np.arange(2000, dtype=np.float32),
    np.arange(3000).reshape(3, 1000),
    np.arange(40 * 40 * 3).reshape(40, 40, 3),
    np.arange(4, dtype=np.float16) / 3,
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)[::-1],
]


@pytest.mark.parametrize("a", CASES, ids=lambda a: f"{a.dtype}{a.shape}")
def test_looks_like_numpy(a, device):
    x = nbx.asarray(a, device=device)
    assert str(x) == np.array2string(a)
    text = repr(x)
    body = np.array2string(a, separator=", ", prefix="Tensor(")
    assert text == f"Tensor({body}, dtype={a.dtype}, device='{x.device.name}')"


def test_empty_tells_its_shape():
    assert repr(nbx.empty((0, 3), "int8")) == "Tensor([], shape=(0, 3), dtype=int8, device='cpu')"
    assert repr(nbx.empty(0, "int8")) == "Tensor([], dtype=int8, device='cpu')"
    assert str(nbx.empty((2, 0))) == "[]"


def test_bfloat16_and_float8():
    assert str(nbx.asarray([0.5, 1, 2.25], "bfloat16")) == "[0.5  1.   2.25]"
    assert repr(nbx.asarray([0.5, 1], "float8_e5m2")) == "Tensor([0.5, 1. ], dtype=float8_e5m2, device='cpu')"


def test_null_has_no_values():
    x = nbx.empty((2, 3), device="null")
    assert repr(x) == "Tensor(<null>, shape=(2, 3), dtype=float32, device='null')"
    assert str(x) == f"{x}" == "<null>"


def test_print_options_are_numpys():
    x = nbx.asarray([1 / 3, 2 / 3])
    with np.printoptions(precision=2):
        assert str(x) == "[0.33 0.67]"
    with np.printoptions(threshold=3, edgeitems=1):
        assert str(nbx.asarray([1, 2, 3, 4])) == "[1 ... 4]"


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_every_dtype_prints(d):
    assert f"dtype={d.name}" in repr(nbx.asarray([0, 1], d))


def test_a_large_tensor_is_cut_before_it_is_copied(monkeypatch):
    from nbxtensor.tensor import printing

    seen: list[int] = []
    to_bits = printing.to_bits
    monkeypatch.setattr(printing, "to_bits", lambda x, name: seen.append(x.size) or to_bits(x, name))
    repr(nbx.empty((100, 100, 100), "uint8"))
    assert seen == [27] * 8
