"""Integer keys in the order of numbers, for maxima and minima without an order of evaluation.

A float's key is its bits, mirrored for negative numbers: -0.0 lies just below 0.0. NaN gets the largest key (or the
smallest, for minima), which maps back to a NaN. 16-bit floats are widened first; integers are their own keys, but for
uint64, whose top bit is flipped.
"""

from nbxtensor.compiler.source import kernel, tl

INT32_MAX = 0x7FFFFFFF
INT32_MIN = -0x80000000
INT64_MAX = 0x7FFFFFFFFFFFFFFF
INT64_MIN = -0x8000000000000000


@kernel
def mirrored(bits):
    """Bits of a float to its key, and back."""
    if bits.dtype == tl.int64:
        key = bits ^ ((bits >> 63) & INT64_MAX)
    else:
        key = bits ^ ((bits >> 31) & INT32_MAX)
    return key


@kernel
def float_key(x, NAN_LARGE: tl.constexpr):
    """Key of a float: int64 for float64, else int32."""
    if x.dtype == tl.float64:
        key = mirrored(x.to(tl.int64, bitcast=True))
        if NAN_LARGE:
            key = tl.where(x != x, INT64_MAX, key)
        else:
            key = tl.where(x != x, INT64_MIN, key)
    else:
        wide = x.to(tl.float32)
        key = mirrored(wide.to(tl.int32, bitcast=True))
        if NAN_LARGE:
            key = tl.where(wide != wide, INT32_MAX, key)
        else:
            key = tl.where(wide != wide, INT32_MIN, key)
    return key


@kernel
def integer_key(x):
    """Key of an integer or bool: int64 for 64 bits and uint32, else int32."""
    if x.dtype == tl.uint64:
        key = x.to(tl.int64, bitcast=True) ^ INT64_MIN
    elif x.dtype == tl.int64 or x.dtype == tl.uint32:
        key = x.to(tl.int64)
    else:
        key = x.to(tl.int32)
    return key


@kernel
def largest_key(x):
    """Key with NaN above everything."""
    if x.dtype.is_floating():
        key = float_key(x, True)
    else:
        key = integer_key(x)
    return key


@kernel
def smallest_key(x):
    """Key with NaN below everything."""
    if x.dtype.is_floating():
        key = float_key(x, False)
    else:
        key = integer_key(x)
    return key


@kernel
def key_to_float32(key, n):
    return mirrored(key).to(tl.float32, bitcast=True)


@kernel
def key_to_float64(key, n):
    return mirrored(key).to(tl.float64, bitcast=True)


@kernel
def key_to_uint64(key, n):
    return (key ^ INT64_MIN).to(tl.uint64, bitcast=True)


@kernel
def lowest32():
    return tl.full((), INT32_MIN, tl.int32)


@kernel
def lowest64():
    return tl.full((), INT64_MIN, tl.int64)


@kernel
def highest32():
    return tl.full((), INT32_MAX, tl.int32)


@kernel
def highest64():
    return tl.full((), INT64_MAX, tl.int64)
