"""Rows where a program is plain code: least significant digit first, one element after the other.

A program has scratch memory of its own, so that it stays in the cache while one row follows the other: two states of
`n` packed elements (PACK = 0: of keys, then of indices) and RADIX counters for each pass. DIGITS is
``(BITS of a digit, passes)``.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.ops.sort.keys import is_ambiguous, order_key, pack, packed_index, packed_key, raw_bits
from nbxtensor.ops.sort.layout import along_row, row_offset


@kernel
def digit_of(a, P: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr):
    """Digit P of a packed element or key; the highest holds the sign."""
    SIGN: tl.constexpr = 1 << (KEY[0] - 1 - (DIGITS[1] - 1) * DIGITS[0])
    MASK: tl.constexpr = (1 << DIGITS[0]) - 1
    if P == DIGITS[1] - 1:
        # The digits may reach beyond the key's bits, where the sign repeats.
        digit = ((a >> (PACK // 2 + P * DIGITS[0])) & (2 * SIGN - 1)) ^ SIGN
    else:
        digit = (a >> (PACK // 2 + P * DIGITS[0])) & MASK
    return digit


@kernel
def build_keys(
    x, keys, more, begin, end, x_step,
    KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Write the packed elements (or keys and indices) of a piece of the row at `x`."""
    for at in range(begin, end, VECTOR):
        i = at + tl.arange(0, VECTOR)
        mask = i < end
        key = order_key(tl.load(x + along_row(i, x_step, X_FORM), mask=mask, other=0), KEY)
        if PACK:
            tl.store(keys + i, pack(key, i, PACK), mask=mask)
        else:
            tl.store(keys + i, key.to(tl.int64), mask=mask)
            tl.store(more + i, i, mask=mask)


@kernel
def write_results(
    x, values, indices, keys, more, begin, end, x_step, v_step, i_step,
    KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr,
    WANTED: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Write positions `begin` to `end` of a sorted row."""
    for at in range(begin, end, VECTOR):
        i = at + tl.arange(0, VECTOR)
        mask = i < end
        a = tl.load(keys + i, mask=mask, other=0)
        if PACK:
            key = packed_key(a, PACK)
            index = packed_index(a, PACK).to(tl.int64)
        else:
            index = tl.load(more + i, mask=mask, other=0)
            if KEY[0] == 64:
                key = a
            else:
                key = a.to(tl.int32)
        if WANTED[1]:
            tl.store(indices + along_row(i, i_step, I_FORM), index, mask=mask)
        if WANTED[0]:
            pointers = values + along_row(i, v_step, V_FORM)
            tl.store(pointers, raw_bits(key, KEY), mask=mask)
            if KEY[1]:
                again = is_ambiguous(key, KEY) & mask
                if tl.max(again.to(tl.int32), 0) > 0:
                    raw = tl.load(x + along_row(index, x_step, X_FORM), mask=again, other=0)
                    tl.store(pointers, raw, mask=again)


@kernel
def row_sort_kernel(
    x, places, counters, values, indices, n, limit, count, workers, kept, x_kept, v_kept, i_kept,
    x_step, v_step, i_step,
    KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr, VECTOR: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    """Sort every `workers`-th row."""
    RADIX: tl.constexpr = 1 << DIGITS[0]
    PASSES: tl.constexpr = DIGITS[1]
    program = tl.program_id(0).to(tl.int64)
    if PACK:
        keys = places + program * (2 * n)
        more = keys
    else:
        keys = places + program * (4 * n)
        more = keys + 2 * n
    counters += program * (RADIX * PASSES)
    for row in range(program, count, workers):
        source = x + row_offset(row, kept, x_kept, X_FORM)
        build_keys(source, keys, more, 0, n, x_step, KEY, PACK, X_FORM, VECTOR)
        for at in range(0, RADIX * PASSES, RADIX):
            tl.store(counters + at + tl.arange(0, RADIX), tl.zeros((RADIX,), tl.int64))
        for i in range(0, n):
            a = tl.load(keys + i)
            for p in tl.static_range(PASSES):
                slot = counters + (p * RADIX + digit_of(a, p, KEY, PACK, DIGITS))
                tl.store(slot, tl.load(slot) + 1)
        state = row * 0
        for p in tl.static_range(PASSES):
            slots = counters + p * RADIX
            first = tl.load(slots + digit_of(tl.load(keys + state), p, KEY, PACK, DIGITS))
            moves = (first != n).to(tl.int64)
            for _ in range(0, moves):
                before = row * 0
                for d in range(0, RADIX):
                    here = tl.load(slots + d)
                    tl.store(slots + d, before)
                    before += here
                target = n - state
                for i in range(0, n):
                    a = tl.load(keys + state + i)
                    slot = slots + digit_of(a, p, KEY, PACK, DIGITS)
                    to = tl.load(slot)
                    tl.store(slot, to + 1)
                    tl.store(keys + target + to, a)
                    if not PACK:
                        tl.store(more + target + to, tl.load(more + state + i))
            state = state + moves * (n - 2 * state)
        write_results(
            source, values + row_offset(row, kept, v_kept, V_FORM), indices + row_offset(row, kept, i_kept, I_FORM),
            keys + state, more + state, 0, limit, x_step, v_step, i_step,
            KEY, PACK, X_FORM, V_FORM, I_FORM, WANTED, VECTOR,
        )  # fmt: skip
