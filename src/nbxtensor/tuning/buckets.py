"""Sizes of launch keys: exact while small, in bounded relative steps beyond.

What a size is worth differs: the length of a row decides how it is held, the number of rows only whether the device is
full. A bucket is named by its largest size, and `bucket` is monotone: a larger size never has a smaller bucket.
docs/decisions/011-tuning.md has the measurement behind the steps.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes up to `exact` are their own bucket; beyond, an octave has `steps` of them (a power of two)."""

    exact: int
    steps: int

    def bucket(self, size: int) -> int:
        """The largest size of the bucket that holds `size`."""
        if size <= self.exact:
            return size
        step = max(1, (1 << (size - 1).bit_length()) // (2 * self.steps))
        return -(-size // step) * step


LENGTH = Buckets(64, 4)
COUNT = Buckets(8, 1)
BUCKETS = {
    "length": LENGTH,  # elements that one result, or one row, depends on
    "inner": COUNT,  # rows that are neighbours in memory
    "count": COUNT,  # rows
    "elements": COUNT,  # of a launch whose elements are independent
    "m": LENGTH,
    "n": LENGTH,
    "k": LENGTH,
    "limit": LENGTH,  # elements that are selected of a row
}
"""Buckets of each kind of size that a key may hold."""


def bucket(kind: str, size: int) -> int:
    """The bucket of a size of the given kind."""
    return BUCKETS[kind].bucket(size)
