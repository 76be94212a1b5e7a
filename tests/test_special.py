"""Special values of operators on rows, as data of the operators; the page in docs/ shows the same data."""

from typing import Any

import numpy as np
import pytest
from tools import special

import nbxtensor as nbx
from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.dispatch import table
from numeric import same_bits

table["exp"]  # loads every operator
ROWS = sorted(name for name, op in operators.items() if op.special and isinstance(op.special[0][0], tuple))


def test_the_page_is_what_the_operators_declare() -> None:
    page = special.DOCUMENT.read_text()
    assert page == special.page(), "run `make special` and commit docs/special-values.md"


def test_the_founding_operators_declare_theirs() -> None:
    for name in ("sigmoid", "silu", "sin", "softplus", "softmax", "log_softmax", "sort", "argsort", "cumulative_sum"):
        assert len(operators[name].special) >= 4, name


@pytest.mark.parametrize("width", [0, 1000])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, width: int, device: str) -> None:
    """Each row alone, and in a matrix of many rows along axis 0."""
    op = operators[name]
    for given, stated in op.special:
        x = np.array(given, np.float32)
        expected: Any = np.array(stated)
        if width:
            x, expected = (np.repeat(a[:, None], width, 1) for a in (x, expected))
            result = np.asarray(op.function(nbx.asarray(x, device=device), axis=0).to_device("cpu"))
        else:
            result = np.asarray(op.function(nbx.asarray(x, device=device)).to_device("cpu"))
        expected = expected.astype(result.dtype)
        if result.dtype.kind != "f":
            np.testing.assert_array_equal(result, expected, err_msg=str(given))
            continue
        exact = ~np.isfinite(expected) | (expected == 0)
        assert same_bits(result[exact], expected[exact]), given
        np.testing.assert_allclose(result[~exact], expected[~exact], rtol=1e-6, err_msg=str(given))
