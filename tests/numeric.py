"""Comparing results with float64 references, in units in the last place."""

import numpy as np

_PRECISION = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}


def ulp_error(result: np.ndarray, reference: np.ndarray, dtype: str) -> float:
    """Largest distance between `result` and `reference` in ULP of the reference's binade in `dtype`.

    NaN must meet NaN, and an infinity the same infinity, or a reference that rounds to it; otherwise the error is inf.
    """
    precision, smallest = _PRECISION[dtype]
    got = np.asarray(result).astype(np.float64).reshape(-1)
    want = np.asarray(reference).astype(np.float64).reshape(-1)
    assert got.shape == want.shape, (got.shape, want.shape)
    if not got.size:
        return 0.0
    limits = {"float16": 65520.0, "bfloat16": 3.3961775292304e38, "float32": 3.4028235677973366e38}
    overflow = np.abs(want) >= limits.get(dtype, np.inf)
    want = np.where(overflow, np.copysign(np.inf, want), want)
    nan = np.isnan(want)
    if (np.isnan(got) != nan).any():
        return float("inf")
    infinite = np.isinf(want) | np.isinf(got)
    if (got[infinite] != want[infinite]).any():
        return float("inf")
    good = ~(nan | infinite)
    got, want = got[good], want[good]
    if not got.size:
        return 0.0
    _, exponent = np.frexp(want)
    unit = np.ldexp(1.0, np.maximum(exponent - precision, smallest))
    return float(np.max(np.abs(got - want) / unit))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays hold the same bits; any NaN equals any NaN."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    unsigned = f"u{a.dtype.itemsize}"
    equal = a.view(unsigned) == b.view(unsigned)
    if a.dtype.kind not in "biu":
        equal |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool(equal.all())
