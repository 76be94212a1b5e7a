"""Sign, class and order of floats by their bits: the same answer on every device, NaN and the two zeros included.

Every function takes a tile of any dtype. Device code only: these are called from kernels.
"""

from nbxtensor.compiler.source import kernel, tl


@kernel
def bits_of(x):
    """The bits of a float as a signed integer of the same width."""
    if x.dtype == tl.float64:
        b = x.to(tl.int64, bitcast=True)
    elif x.dtype == tl.float32:
        b = x.to(tl.int32, bitcast=True)
    else:
        b = x.to(tl.int16, bitcast=True)
    return b


@kernel
def negate(x):
    """-x. A float's sign bit is flipped (-0.0 and NaN too); integers wrap."""
    if x.dtype == tl.float64:
        r = (x.to(tl.int64, bitcast=True) ^ -9223372036854775808).to(tl.float64, bitcast=True)
    elif x.dtype == tl.float32:
        r = (x.to(tl.int32, bitcast=True) ^ -2147483648).to(tl.float32, bitcast=True)
    elif x.dtype.is_floating():
        r = (x.to(tl.int16, bitcast=True) ^ -32768).to(x.dtype, bitcast=True)
    else:
        r = 0 - x
    return r


@kernel
def magnitude(x):
    """|x|. A float's sign bit is cleared (NaN too); the most negative integer wraps to itself."""
    if x.dtype == tl.float64:
        r = (x.to(tl.int64, bitcast=True) & 9223372036854775807).to(tl.float64, bitcast=True)
    elif x.dtype == tl.float32:
        r = (x.to(tl.int32, bitcast=True) & 2147483647).to(tl.float32, bitcast=True)
    elif x.dtype.is_floating():
        r = (x.to(tl.int16, bitcast=True) & 32767).to(x.dtype, bitcast=True)
    elif x.dtype.is_int_unsigned() or x.dtype == tl.int1:
        r = x
    else:
        r = tl.where(x < 0, 0 - x, x)
    return r


@kernel
def copy_sign(x, s):
    """|x| with the sign bit of `s`; both of one float dtype."""
    if x.dtype == tl.float64:
        m = x.to(tl.int64, bitcast=True) & 9223372036854775807
        r = (m | (s.to(tl.int64, bitcast=True) & -9223372036854775808)).to(tl.float64, bitcast=True)
    elif x.dtype == tl.float32:
        m = x.to(tl.int32, bitcast=True) & 2147483647
        r = (m | (s.to(tl.int32, bitcast=True) & -2147483648)).to(tl.float32, bitcast=True)
    else:
        m = x.to(tl.int16, bitcast=True) & 32767
        r = (m | (s.to(tl.int16, bitcast=True) & -32768)).to(x.dtype, bitcast=True)
    return r


@kernel
def is_nan(x):
    """Whether x is NaN (False for integers)."""
    if x.dtype == tl.float64 or x.dtype == tl.float32:
        r = x != x
    elif x.dtype == tl.bfloat16:
        r = (x.to(tl.int16, bitcast=True) & 32767) > 0x7F80
    elif x.dtype == tl.float16:
        r = (x.to(tl.int16, bitcast=True) & 32767) > 0x7C00
    else:
        r = x != x
    return r


@kernel
def is_inf(x):
    """Whether x is +inf or -inf (False for integers)."""
    if x.dtype == tl.float64:
        r = (x.to(tl.int64, bitcast=True) & 9223372036854775807) == 0x7FF0000000000000
    elif x.dtype == tl.float32:
        r = (x.to(tl.int32, bitcast=True) & 2147483647) == 0x7F800000
    elif x.dtype == tl.bfloat16:
        r = (x.to(tl.int16, bitcast=True) & 32767) == 0x7F80
    elif x.dtype == tl.float16:
        r = (x.to(tl.int16, bitcast=True) & 32767) == 0x7C00
    else:
        r = x != x
    return r


@kernel
def is_finite(x):
    """Whether x is neither infinite nor NaN (True for integers)."""
    if x.dtype == tl.float64:
        r = (x.to(tl.int64, bitcast=True) & 9223372036854775807) < 0x7FF0000000000000
    elif x.dtype == tl.float32:
        r = (x.to(tl.int32, bitcast=True) & 2147483647) < 0x7F800000
    elif x.dtype == tl.bfloat16:
        r = (x.to(tl.int16, bitcast=True) & 32767) < 0x7F80
    elif x.dtype == tl.float16:
        r = (x.to(tl.int16, bitcast=True) & 32767) < 0x7C00
    else:
        r = x == x
    return r


@kernel
def maximum(x, y):
    """The larger of x and y: NaN if either is NaN, and -0.0 is less than 0.0. fp32, fp64, integers, bool."""
    if x.dtype == tl.float64:
        both = (x.to(tl.int64, bitcast=True) & y.to(tl.int64, bitcast=True)).to(tl.float64, bitcast=True)
        r = tl.where(x == y, both, tl.where(x > y, x, y))
        r = tl.where(x != x, x, r)
    elif x.dtype == tl.float32:
        both = (x.to(tl.int32, bitcast=True) & y.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
        r = tl.where(x == y, both, tl.where(x > y, x, y))
        r = tl.where(x != x, x, r)
    else:
        tl.static_assert(x.dtype.is_int(), "maximum takes fp32, fp64, integers and bool: widen 16-bit floats first")
        r = tl.where(x > y, x, y)
    return r


@kernel
def minimum(x, y):
    """The smaller of x and y: NaN if either is NaN, and -0.0 is less than 0.0. fp32, fp64, integers, bool."""
    if x.dtype == tl.float64:
        both = (x.to(tl.int64, bitcast=True) | y.to(tl.int64, bitcast=True)).to(tl.float64, bitcast=True)
        r = tl.where(x == y, both, tl.where(x < y, x, y))
        r = tl.where(x != x, x, r)
    elif x.dtype == tl.float32:
        both = (x.to(tl.int32, bitcast=True) | y.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
        r = tl.where(x == y, both, tl.where(x < y, x, y))
        r = tl.where(x != x, x, r)
    else:
        tl.static_assert(x.dtype.is_int(), "minimum takes fp32, fp64, integers and bool: widen 16-bit floats first")
        r = tl.where(x < y, x, y)
    return r


@kernel
def sign(x):
    """-1, 0 or 1; NaN passes and a zero keeps its sign. fp32, fp64, integers."""
    if x.dtype.is_floating():
        one = tl.where(x == 0.0, 0.0, 1.0).to(x.dtype)
        r = tl.where(x != x, x, copy_sign(one, x))
    else:
        r = (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
    return r
