"""What in a kernel's TTIR a device does not take, by its profile."""

import math
import re

from nbxtensor.device.protocol import Profile

_LOOP = re.compile(r"scf\.for .*: i64(?: \{.*)?$")
_FLOAT64 = re.compile(r"\bf64\b|xf64[>,]")
_REDUCTION = re.compile(r'"tt\.(?:reduce|scan)"')
_OPERAND = re.compile(r"\}\) : \(tensor<((?:\d+x)+)")


def beyond(text: str, profile: Profile) -> set[str]:
    """What the TTIR in `text` needs and the profile does not have, in words; empty if it fits.

    64-bit loop bounds, float64, and reduced (or scanned) tiles above the cap are looked for.
    """
    found: set[str] = set()
    reduced = False
    for line in map(str.strip, text.splitlines()):
        if profile.loop_bits < 64 and _LOOP.search(line):
            found.add("64-bit loop bounds")
        if "float64" not in profile.dtypes and _FLOAT64.search(line):
            found.add("float64")
        reduced = reduced or _REDUCTION.search(line) is not None
        operand = _OPERAND.match(line) if reduced else None
        if operand:
            reduced = False
            elements = math.prod(int(n) for n in operand[1].rstrip("x").split("x"))
            if elements > profile.reduce_tile_max:
                found.add(f"reduced tiles of {elements:,}")
    return found
