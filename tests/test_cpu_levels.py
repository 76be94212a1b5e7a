"""What LLVM makes of the levels of x86-64 that this machine may not run."""

import re

import llvmlite.binding as binding
import numpy as np
import pytest

from cpu_compiler_harness import load
from nbxtensor.compiler.cpu.fence import fence_bit_selects
from nbxtensor.compiler.cpu.llvm import compile_text
from nbxtensor.device.cpu_level import cpu_flags, supported_levels

MASK = 0x00FF0FF1
SELECT = """
target triple = "x86_64-unknown-linux-gnu"
define void @merge(ptr %args, i64 %start, i64 %end, i64 %gx, i64 %gy, i64 %gz) {
  %xp = load ptr, ptr %args
  %yp.slot = getelementptr i64, ptr %args, i64 1
  %yp = load ptr, ptr %yp.slot
  %x = load <8 x TYPE>, ptr %xp, align 4
  %y = load <8 x TYPE>, ptr %yp, align 4
  %xi = bitcast <8 x TYPE> %x to <8 x INT>
  %yi = bitcast <8 x TYPE> %y to <8 x INT>
  %sign = and <8 x INT> %xi, splat (INT LOW)
  %size = and <8 x INT> %yi, splat (INT HIGH)
  %both = or disjoint <8 x INT> %sign, %size
  %merged = bitcast <8 x INT> %both to <8 x TYPE>
  %c = icmp slt <8 x INT> %xi, %yi
  %r = select <8 x i1> %c, <8 x TYPE> YES, <8 x TYPE> NO
  store <8 x TYPE> %r, ptr %yp, align 4
  ret void
}
"""


def _module(type: str, swapped: bool) -> str:
    integer = "i64" if type in ("i64", "double") else "i32"
    text = SELECT.replace("TYPE", type).replace("INT", integer).replace("LOW", str(MASK)).replace("HIGH", str(~MASK))
    arms = ("%x", "%merged") if swapped else ("%merged", "%x")
    return text.replace("YES", arms[0]).replace("NO", arms[1])


def _assembly(text: str) -> str:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="x86-64-v4", opt=2)
    return machine.emit_assembly(binding.parse_assembly(text))


@pytest.mark.parametrize("type", ["i32", "i64", "float", "double"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_bit_select_is_not_merged_into_a_mask(type: str, swapped: bool) -> None:
    masked = re.compile(r"vpternlog.*\{%k")
    text = _module(type, swapped)
    assert swapped or type in ("float", "double") or masked.search(_assembly(text))  # what the fence is for
    fenced = fence_bit_selects(text)
    assert fenced is not None
    assert not masked.search(_assembly(fenced))
    assert fence_bit_selects(text.replace("or disjoint", "xor")) is None


@pytest.mark.parametrize("level", supported_levels(cpu_flags()))
@pytest.mark.parametrize("type", ["i32", "i64", "float", "double"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_bit_select_under_a_select(type: str, swapped: bool, level: str) -> None:
    x, y = np.random.default_rng().integers(-(2**63), 2**63 - 1, (2, 8))
    if type in ("i32", "float"):
        x, y = x.astype(np.int32), y.astype(np.int32)
    merged = (x & MASK) | (y & ~MASK)
    expected = np.where(x < y, x, merged) if swapped else np.where(x < y, merged, x)
    pointers = np.array([x.ctypes.data, y.ctypes.data])
    load(compile_text(_module(type, swapped), level), "merge")(pointers.ctypes.data, 0, 1, 1, 1, 1)
    np.testing.assert_array_equal(y, expected)
