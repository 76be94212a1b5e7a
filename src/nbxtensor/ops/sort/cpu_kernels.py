"""Rows where a program is plain code: least significant digit first, one element after the other.

A program has scratch memory of its own, so that it stays in the cache while one row follows the other: two states of
`n` packed elements (PACK = 0: of keys, then of indices) and RADIX counters for each pass. DIGITS is
``(BITS of a digit, passes)``.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.ops.sort.keys import (
    is_ambiguous,
    key_in,
    largest_key,
    least_place,
    order_key,
    pack,
    packed_index,
    raw_bits,
)
from nbxtensor.ops.sort.layout import along_row, row_offset


@kernel
def scratch(places, program, size, PACK: tl.constexpr):
    """A program's room for `size` packed elements, or keys and indices."""
    if PACK:
        keys = places + program * size
        more = keys
    else:
        keys = places + program * (2 * size)
        more = keys + size
    return keys, more


@kernel
def digit_of(a, P: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr):
    """Digit P of a packed element or key; the highest holds the sign."""
    SIGN: tl.constexpr = 1 << (KEY[0] - 1 - (DIGITS[1] - 1) * DIGITS[0])
    MASK: tl.constexpr = (1 << DIGITS[0]) - 1
    if DIGITS[1] - 1 == P:
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
        key = key_in(a, KEY, PACK)
        if PACK:
            index = packed_index(a, PACK).to(tl.int64)
        else:
            index = tl.load(more + i, mask=mask, other=0)
        if WANTED[1]:
            tl.store(indices + along_row(i, i_step, I_FORM), index, mask=mask)
        if WANTED[0]:
            pointers = values + along_row(i, v_step, V_FORM)
            tl.store(pointers, raw_bits(key, KEY), mask=mask)
            if KEY[1]:
                again = is_ambiguous(key, KEY) & mask
                if tl.max(again.to(tl.int32), 0) > 0:
                    tl.store(pointers, tl.load(x + along_row(index, x_step, X_FORM), mask=again, other=0), mask=again)


@kernel
def sort_packed(keys, more, counters, n, KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr):
    """Sort `n` packed elements (or keys and indices) that have room for `n` more behind them; returns where they are.

    A digit that is the same everywhere is skipped.
    """
    RADIX: tl.constexpr = 1 << DIGITS[0]
    PASSES: tl.constexpr = DIGITS[1]
    for at in range(0, RADIX * PASSES, RADIX):
        tl.store(counters + at + tl.arange(0, RADIX), tl.zeros((RADIX,), tl.int64))
    for i in range(n):
        a = tl.load(keys + i)
        for p in tl.static_range(PASSES):
            slot = counters + (p * RADIX + digit_of(a, p, KEY, PACK, DIGITS))
            tl.store(slot, tl.load(slot) + 1)
    state = n * 0
    for p in tl.static_range(PASSES):
        slots = counters + p * RADIX
        same = tl.load(slots + digit_of(tl.load(keys + state), p, KEY, PACK, DIGITS))
        moves = (same != n).to(tl.int64)
        for _ in range(moves):
            before = n * 0
            for d in range(RADIX):
                here = tl.load(slots + d)
                tl.store(slots + d, before)
                before += here
            target = n - state
            for i in range(n):
                a = tl.load(keys + state + i)
                slot = slots + digit_of(a, p, KEY, PACK, DIGITS)
                to = tl.load(slot)
                tl.store(slot, to + 1)
                tl.store(keys + target + to, a)
                if not PACK:
                    tl.store(more + target + to, tl.load(more + state + i))
        state = state + moves * (n - 2 * state)
    return state


@kernel
def row_sort_kernel(
    x, places, counters, values, indices, n, limit, count, workers, kept, x_kept, v_kept, i_kept,
    x_step, v_step, i_step,
    KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr, VECTOR: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    """Sort every `workers`-th row."""
    program = tl.program_id(0).to(tl.int64)
    keys, more = scratch(places, program, 2 * n, PACK)
    counters += program * (DIGITS[1] << DIGITS[0])
    for row in range(program, count, workers):
        source = x + row_offset(row, kept, x_kept, X_FORM)
        build_keys(source, keys, more, 0, n, x_step, KEY, PACK, X_FORM, VECTOR)
        state = sort_packed(keys, more, counters, n, KEY, PACK, DIGITS)
        write_results(
            source, values + row_offset(row, kept, v_kept, V_FORM), indices + row_offset(row, kept, i_kept, I_FORM),
            keys + state, more + state, 0, limit, x_step, v_step, i_step,
            KEY, PACK, X_FORM, V_FORM, I_FORM, WANTED, VECTOR,
        )  # fmt: skip


@kernel
def _shorten(keys, more, counters, size, limit, KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr):
    """Sort the `size` candidates and put the first `limit` to the front; returns the key of the last of them."""
    state = sort_packed(keys, more, counters, size, KEY, PACK, DIGITS)
    last = key_in(tl.load(keys + (state + limit - 1)), KEY, PACK)
    for i in range((state > 0).to(tl.int64) * limit):
        tl.store(keys + i, tl.load(keys + (state + i)))
        if not PACK:
            tl.store(more + i, tl.load(more + (state + i)))
    return last


@kernel
def _insert(keys, more, size, place, index, PACK: tl.constexpr):
    """Insert an element that comes behind its equals into `size` sorted ones; the smallest value lies before them."""
    at = size
    while tl.load(keys + (at - 1)) > place:
        tl.store(keys + at, tl.load(keys + (at - 1)))
        if not PACK:
            tl.store(more + at, tl.load(more + (at - 1)))
        at -= 1
    tl.store(keys + at, place)
    if not PACK:
        tl.store(more + at, index)


@kernel
def row_select_kernel(
    x, places, counters, values, indices, n, room, limit, count, workers, kept, x_kept, v_kept, i_kept,
    x_step, v_step, i_step,
    KEY: tl.constexpr, PACK: tl.constexpr, DIGITS: tl.constexpr, VECTOR: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr,
    INSERT: tl.constexpr,
):  # fmt: skip
    """Select the first `limit` elements in order of every `workers`-th row.

    Candidates come before `bound`, the key of the `limit`-th so far; later elements lose ties, so most blocks of a row
    are passed over after one look at their best. INSERT: each candidate goes to its place at once (for few). Else
    candidates are collected until there are `room`, then sorted and cut to `limit`.
    """
    program = tl.program_id(0).to(tl.int64)
    keys, more = scratch(places, program, 2 * room, PACK)
    if INSERT:
        tl.store(keys, least_place(PACK))
        keys += 1
        more += 1
    counters += program * (DIGITS[1] << DIGITS[0])
    for row in range(program, count, workers):
        source = x + row_offset(row, kept, x_kept, X_FORM)
        size = n * 0
        free = limit + row * 0
        bound = largest_key(KEY)
        for at in range(0, n, VECTOR):
            i = at + tl.arange(0, VECTOR)
            key = order_key(tl.load(source + along_row(i, x_step, X_FORM), mask=i < n, other=0), KEY)
            best = tl.min(tl.where(i < n, key, largest_key(KEY)), 0)
            for j in range(at, tl.where((best < bound) | (free > 0), tl.minimum(at + VECTOR, n), at)):
                one = order_key(tl.load(source + along_row(j, x_step, X_FORM)), KEY)
                if PACK:
                    place = pack(one, j, PACK)
                else:
                    place = one.to(tl.int64)
                better = (one < bound) | (free > 0)
                if INSERT:
                    if better:
                        size = tl.minimum(size, limit - 1)
                        _insert(keys, more, size, place, j, PACK)
                        size += 1
                        free = limit - size
                        bound = key_in(tl.load(keys + (size - 1)), KEY, PACK)
                else:
                    tl.store(keys + size, place)
                    if not PACK:
                        tl.store(more + size, j)
                    size += better.to(tl.int64)
                    if size == room:
                        bound = _shorten(keys, more, counters, size, limit, KEY, PACK, DIGITS)
                        size = limit
                        free = n * 0
        if not INSERT:
            _shorten(keys, more, counters, size, limit, KEY, PACK, DIGITS)
        write_results(
            source, values + row_offset(row, kept, v_kept, V_FORM), indices + row_offset(row, kept, i_kept, I_FORM),
            keys, more, 0, limit, x_step, v_step, i_step,
            KEY, PACK, X_FORM, V_FORM, I_FORM, WANTED, VECTOR,
        )  # fmt: skip
