"""One long row where a program is plain code: each launch does a step for all parts of the row, a program a part.

As in `nbxtensor.ops.sort.cpu_kernels`, `places` has room for two states of the row. Each part counts its digits, the
counts of all parts give where each digit of each part goes, and each part moves its elements there. `states` says for
each pass in which state the row lies before it: a digit that is the same everywhere is skipped.

DIGITS is ``(BITS of a digit, passes)``. A digit is ``((a >> shift) & mask) ^ flip``; `flip` turns the sign.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.ops.sort.cpu_kernels import build_keys, scratch, write_results


@kernel
def _part(n, parts):
    """A program's part of the row."""
    program = tl.program_id(0).to(tl.int64)
    return program, n * program // parts, n * (program + 1) // parts


@kernel
def _digit(a, shift, mask, flip):
    return ((a >> shift.to(a.dtype)) & mask.to(a.dtype)) ^ flip.to(a.dtype)


@kernel
def part_keys_kernel(
    x, places, states, n, parts, x_step,
    KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Write the packed elements (or keys and indices) to the first state."""
    tl.store(states, n * 0)
    _, begin, end = _part(n, parts)
    keys, more = scratch(places, begin * 0, 2 * n, PACK)
    build_keys(x, keys, more, begin, end, x_step, KEY, PACK, X_FORM, VECTOR)


@kernel
def part_counts_kernel(places, counters, states, n, parts, number, shift, mask, flip, DIGITS: tl.constexpr):
    """Count the digits of pass `number`."""
    RADIX: tl.constexpr = 1 << DIGITS[0]
    program, begin, end = _part(n, parts)
    slots = counters + program * RADIX
    tl.store(slots + tl.arange(0, RADIX), tl.zeros((RADIX,), tl.int64))
    keys = places + tl.load(states + number)
    for i in range(begin, end):
        slot = slots + _digit(tl.load(keys + i), shift, mask, flip)
        tl.store(slot, tl.load(slot) + 1)


@kernel
def part_starts_kernel(counters, states, n, parts, number, DIGITS: tl.constexpr):
    """Turn counts into where each digit of each part goes, and say where the pass leaves the row."""
    RADIX: tl.constexpr = 1 << DIGITS[0]
    before = n * 0
    moves = before + 1
    for d in range(RADIX):
        first = before
        for p in range(parts):
            slot = counters + (p * RADIX + d)
            here = tl.load(slot)
            tl.store(slot, before)
            before += here
        if before - first == n:
            moves = n * 0
    state = tl.load(states + number)
    tl.store(states + (number + 1), state + moves * (n - 2 * state))


@kernel
def part_scatter_kernel(
    places, counters, states, n, parts, number, shift, mask, flip, PACK: tl.constexpr, DIGITS: tl.constexpr
):  # fmt: skip
    """Move the elements to the other state, in the order of their digits."""
    program, begin, end = _part(n, parts)
    slots = counters + (program << DIGITS[0])
    keys, more = scratch(places, begin * 0, 2 * n, PACK)
    state = tl.load(states + number)
    target = tl.load(states + (number + 1))
    for i in range(begin, tl.where(state == target, begin, end)):
        a = tl.load(keys + state + i)
        slot = slots + _digit(a, shift, mask, flip)
        to = tl.load(slot)
        tl.store(slot, to + 1)
        tl.store(keys + target + to, a)
        if not PACK:
            tl.store(more + target + to, tl.load(more + state + i))


@kernel
def part_write_kernel(
    x, places, states, values, indices, n, limit, parts, number, x_step, v_step, i_step,
    KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr,
    WANTED: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Write the results; `number` is that of the passes."""
    _, begin, end = _part(n, parts)
    keys, more = scratch(places, begin * 0, 2 * n, PACK)
    state = tl.load(states + number)
    write_results(
        x, values, indices, keys + state, more + state, begin, tl.minimum(end, limit), x_step, v_step, i_step,
        KEY, PACK, X_FORM, V_FORM, I_FORM, WANTED, VECTOR,
    )  # fmt: skip
