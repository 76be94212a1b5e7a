"""Keys: signed integers in the order that a sort puts elements in.

Elements travel as raw bits (signed integers of their size), so that kernels know widths and not types. KEY describes
what the bits mean: ``(BITS, INFINITY, LARGEST, FLIP, DESCENDING)``. INFINITY is the bit pattern of +inf (0: not a
float), LARGEST the greatest signed integer of that width, FLIP what turns an unsigned integer into a signed one of the
same order. A key is an int32 (int64 for 64-bit elements) between the signed limits of its width. Every NaN has the
key LARGEST and both zeros have the key 0: those two keys do not tell the element, all others do.

A packed element is its key above its index in the row: an int64 (32 bits each) or an int32 (16 bits each).
"""

from nbxtensor.base.dtypes import DType, int8, int16, int32, int64
from nbxtensor.compiler.source import kernel, tl

RAW = {8: int8, 16: int16, 32: int32, 64: int64}
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
Key = tuple[int, int, int, int, int]


def key_of(dtype: DType, descending: bool) -> Key:
    """KEY for elements of `dtype`."""
    half = 1 << (dtype.bits - 1)
    return dtype.bits, INFINITY.get(dtype.name, 0), half - 1, 0 if dtype.kind in "if" else -half, int(descending)


@kernel
def order_key(raw, KEY: tl.constexpr):
    """Key of an element, given as raw bits."""
    if KEY[0] == 64:
        key = raw
    else:
        key = raw.to(tl.int32)
    if KEY[1]:
        magnitude = key & KEY[2]
        key = key ^ ((key >> (key.dtype.primitive_bitwidth - 1)) & KEY[2])
        key = tl.where(magnitude == 0, 0, key)
        key = tl.where(magnitude > KEY[1], KEY[2], key)
    elif KEY[3]:
        key = key ^ KEY[3]
    if KEY[4]:
        key = ~key
    return key


@kernel
def _undone(key, KEY: tl.constexpr):
    if KEY[4]:
        key = ~key
    return key


@kernel
def is_ambiguous(key, KEY: tl.constexpr):
    """Whether a key does not tell the element: zeros and NaN."""
    key = _undone(key, KEY)
    return (key == 0) | (key == KEY[2])


@kernel
def raw_bits(key, KEY: tl.constexpr):
    """The element that has an unambiguous key; 0.0 and a NaN for the others."""
    key = _undone(key, KEY)
    if KEY[1]:
        key = key ^ ((key >> (key.dtype.primitive_bitwidth - 1)) & KEY[2])
    elif KEY[3]:
        key = key ^ KEY[3]
    if KEY[0] == 8:
        key = key.to(tl.int8)
    elif KEY[0] == 16:
        key = key.to(tl.int16)
    return key


@kernel
def restored(key, pointers, mask, KEY: tl.constexpr):
    """The elements with these keys; those that the keys do not tell are read again from `pointers`."""
    raw = raw_bits(key, KEY)
    if KEY[1]:
        again = is_ambiguous(key, KEY) & mask
        raw = tl.where(again, tl.load(pointers, mask=again, other=0), raw)
    return raw


@kernel
def pack(key, index, PACK: tl.constexpr):
    """Key (PACK / 2 bits) above index."""
    if PACK == 64:
        packed = (key.to(tl.int64) << 32) | index.to(tl.int64)
    else:
        packed = (key << 16) | index.to(tl.int32)
    return packed


@kernel
def key_in(place, KEY: tl.constexpr, PACK: tl.constexpr):
    """The key in a packed element (PACK = 0: in a key that was widened)."""
    if PACK == 64:
        key = (place >> 32).to(tl.int32)
    elif PACK == 32:
        key = place >> 16
    elif KEY[0] == 64:
        key = place
    else:
        key = place.to(tl.int32)
    return key


@kernel
def largest_key(KEY: tl.constexpr):
    """No key is larger."""
    if KEY[0] == 64:
        key = tl.full((), KEY[2], tl.int64)
    else:
        key = tl.full((), KEY[2], tl.int32)
    return key


@kernel
def packed_index(packed, PACK: tl.constexpr):
    if PACK == 64:
        index = packed & 0xFFFFFFFF
    else:
        index = packed & 0xFFFF
    return index


@kernel
def least_place(PACK: tl.constexpr):
    """No packed element (PACK = 0: widened key) is smaller."""
    if PACK == 32:
        place = tl.full((), -0x80000000, tl.int32)
    else:
        place = tl.full((), -0x8000000000000000, tl.int64)
    return place


@kernel
def worst_place(PACK: tl.constexpr):
    """No element (PACK = 0: no key, and no index) is larger."""
    if PACK == 32:
        worst = tl.full((), 0x7FFFFFFF, tl.int32)
    else:
        worst = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
    return worst
