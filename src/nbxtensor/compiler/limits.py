"""What a kernel needs that a device does not have, by its profile: seen in its TTIR, and in its binary."""

import math
import re

from nbxtensor.device.artifact import Resources
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


def shortages(needs: Resources, profile: Profile) -> list[str]:
    """What a binary needs beyond what its device has, in words; empty if it fits, and for CPUs."""
    if profile.warp_size == 1:
        return []
    found: list[str] = []
    if needs.registers > profile.registers_per_thread:
        found.append(f"{needs.registers} registers of {profile.registers_per_thread}")
    if needs.shared_bytes > profile.shared_bytes:
        found.append(f"{needs.shared_bytes} bytes of shared memory of {profile.shared_bytes}")
    return found
