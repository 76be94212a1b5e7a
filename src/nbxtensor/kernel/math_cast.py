"""Casts between all dtypes, defined in every case and the same on every device.

- float to integer: truncates toward zero, saturates, NaN gives 0. (NumPy leaves what does not fit to the processor:
  `np.float32(300).astype(np.int8)` is 44 on one machine and something else on the next; here it is 127.)
- anything to bool: x != 0, so NaN is True. bool to number: 0 or 1.
- integer to narrower integer: wraps, as in NumPy. Integer to float and float to float: one rounding to nearest even,
  also where the hardware would round twice (float64 or int64 to bfloat16).
"""

from nbxtensor.compiler.source import kernel, tl


@kernel
def f64_to_f32_odd(x):
    """float64 to float32 rounded to odd: a later rounding to a 16-bit float gives what one rounding would."""
    near = x.to(tl.float32)
    back = near.to(tl.float64)
    bits = near.to(tl.int32, bitcast=True)
    step = tl.where(tl.abs(back) > tl.abs(x), -1, 1)
    odd = (bits + step).to(tl.float32, bitcast=True)
    inexact = (back != x) & (x == x) & ((bits & 1) == 0)
    return tl.where(inexact, odd, near)


@kernel
def int_to_f32_sticky(x):
    """A 32-bit or 64-bit integer to float32 such that a later rounding to bfloat16 gives what one rounding would.

    Below 2^24 the conversion is exact. Above, the low bits are folded into one: at least ten bits stay.
    """
    if x.dtype.primitive_bitwidth == 64:
        top = x >> 40
        top = top | ((x & 0xFFFFFFFFFF) != 0).to(x.dtype)
        mid = x >> 28
        mid = mid | ((x & 0xFFFFFFF) != 0).to(x.dtype)
        low = x >> 14
        low = low | ((x & 0x3FFF) != 0).to(x.dtype)
        size = tl.where(x < 0, 0 - x, x) if x.dtype.is_int_signed() else x
        r = tl.where(size < 0x4000000000, low.to(tl.float32) * 16384.0, mid.to(tl.float32) * 268435456.0)
        huge = (size >= 0x10000000000000) | (size < 0) if x.dtype.is_int_signed() else size >= 0x10000000000000
        r = tl.where(huge, top.to(tl.float32) * 1099511627776.0, r)
        r = tl.where((size >= 0) & (size < 0x1000000), x.to(tl.float32), r)
    else:
        low = x >> 8
        low = low | ((x & 0xFF) != 0).to(x.dtype)
        size = tl.where(x < 0, 0 - x, x) if x.dtype.is_int_signed() else x
        r = tl.where((size >= 0) & (size < 0x1000000), x.to(tl.float32), low.to(tl.float32) * 256.0)
    return r


@kernel
def float_to_int(x, DTYPE: tl.constexpr):
    """float32 or float64 to an integer: toward zero, saturating, NaN to 0."""
    bits: tl.constexpr = DTYPE.primitive_bitwidth
    signed: tl.constexpr = DTYPE.is_int_signed()
    lo: tl.constexpr = -(2 ** (bits - 1)) if signed else 0
    hi: tl.constexpr = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    over: tl.constexpr = float(hi + 1)
    safe = tl.where((x > float(lo)) & (x < over), x, 0.0)
    if bits == 64:
        if signed:
            r = safe.to(tl.int64)
        else:
            large = safe >= 9223372036854775808.0
            part = tl.where(large, safe - 9223372036854775808.0, safe).to(tl.int64)
            r = tl.where(large, part ^ -9223372036854775808, part).to(tl.uint64)
    elif bits == 32:
        r = safe.to(tl.int32) if signed else safe.to(tl.int64).to(DTYPE)
    else:
        r = safe.to(tl.int32).to(DTYPE)
    r = tl.where(x >= over, tl.full(r.shape, hi, DTYPE), r)
    return tl.where(x <= float(lo), tl.full(r.shape, lo, DTYPE), r)


@kernel
def cast(x, DTYPE: tl.constexpr):
    """x as `DTYPE` (a `tl` dtype): see the rules at the top of the module."""
    if x.dtype == DTYPE:
        r = x
    elif DTYPE.is_bool():
        if x.dtype == tl.float16 or x.dtype == tl.bfloat16:
            r = (x.to(tl.int16, bitcast=True) & 32767) != 0
        else:
            r = x != 0
    elif x.dtype.is_floating():
        if x.dtype == tl.bfloat16:
            wide = (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
        elif x.dtype == tl.float64:
            wide = x
        else:
            wide = x.to(tl.float32)
        if not DTYPE.is_floating():
            r = float_to_int(wide, DTYPE)
        elif x.dtype == tl.float64 and DTYPE.primitive_bitwidth == 16:
            r = f64_to_f32_odd(x).to(DTYPE)
        else:
            r = wide.to(DTYPE)
    elif DTYPE.is_floating():
        if x.dtype == tl.int1:
            r = tl.where(x, 1.0, 0.0).to(DTYPE)
        elif DTYPE.is_fp64():
            r = x.to(tl.float64)
        elif DTYPE.is_bf16() and x.dtype.primitive_bitwidth >= 32:
            r = int_to_f32_sticky(x).to(DTYPE)
        else:
            r = x.to(tl.float32).to(DTYPE)
    else:
        r = x.to(DTYPE)
    return r
