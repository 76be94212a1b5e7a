"""Where in a tensor a loop nest stands, bit by bit.

All sizes are powers of two, so an index along a dimension is a string of bits, and every view operation (reshape,
trans, broadcast, join, split) only moves, drops or fixes bits. A bit is a pair: ``(var, k)`` is bit `k` of loop
variable `var`, where variable `LANE` counts the lanes of a vector and variable `CONST` stands for the constant `k`.
"""

from __future__ import annotations

from collections.abc import Sequence

LANE = 0
CONST = -1

Bit = tuple[int, int]
Dim = tuple[Bit, ...]
Index = tuple[Dim, ...]

ZERO: Bit = (CONST, 0)
ONE: Bit = (CONST, 1)


def log2(size: int) -> int:
    """log2 of a power of two; any other size is an error."""
    bits = size.bit_length() - 1
    if size != 1 << bits:
        raise ValueError(f"size {size} is not a power of two")
    return bits


def var_dim(var: int, size: int) -> Dim:
    """The index along a dimension that variable `var` runs through."""
    return tuple((var, k) for k in range(log2(size)))


def flatten(index: Index) -> Dim:
    """The row-major linear index."""
    return tuple(bit for dim in reversed(index) for bit in dim)


def unflatten(bits: Dim, shape: Sequence[int]) -> Index:
    """The inverse of `flatten` for `shape`."""
    dims: list[Dim] = []
    at = 0
    for size in reversed(shape):
        n = log2(size)
        dims.append(bits[at : at + n])
        at += n
    return tuple(reversed(dims))


def broadcast(index: Index, shape: Sequence[int]) -> Index:
    """Index into an operand of `shape` that is broadcast to where `index` points."""
    return tuple(() if size == 1 else dim for dim, size in zip(index, shape, strict=True))


def substitute(index: Index, table: dict[Bit, Bit]) -> Index:
    """`index` with bits replaced."""
    return tuple(tuple(table.get(bit, bit) for bit in dim) for dim in index)


def variables(index: Index) -> set[int]:
    """Loop variables (without lanes and constants) that `index` depends on."""
    return {var for dim in index for var, _ in dim if var > 0}


def lane_pattern(dim: Dim, lanes: int) -> tuple[int, ...]:
    """What the lane and constant bits of `dim` contribute to the index, for each lane."""
    pattern = [0] * lanes
    for position, (var, k) in enumerate(dim):
        if var == LANE:
            for lane in range(lanes):
                pattern[lane] |= (lane >> k & 1) << position
        elif var == CONST and k:
            pattern = [p | 1 << position for p in pattern]
    return tuple(pattern)


def runs(dim: Dim) -> list[tuple[int, int, int, int]]:
    """Runs of consecutive loop-variable bits: (variable, first bit, length, position in the index)."""
    found: list[tuple[int, int, int, int]] = []
    for position, (var, k) in enumerate(dim):
        if var <= 0:
            continue
        if found:
            last_var, first, length, start = found[-1]
            if last_var == var and first + length == k and start + length == position:
                found[-1] = (var, first, length + 1, start)
                continue
        found.append((var, k, 1, position))
    return found


def fixed_low(dim: Dim) -> tuple[int, int]:
    """How many of the lowest bits are constants below the lanes, and their value; (0, 0) if lanes are lowest."""
    value = 0
    for k, (var, bit) in enumerate(dim):
        if var == LANE and bit == 0:
            return k, value
        if var != CONST:
            break
        value |= bit << k
    return 0, 0
