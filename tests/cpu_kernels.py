"""Small native kernels for tests of the CPU device, made from LLVM IR without our compiler."""

import numpy as np
import pytest

from nbxtensor.device import get
from nbxtensor.device.artifact import Artifact, Options, Resources, Target

llvm = pytest.importorskip("llvmlite.binding")

SIGNATURE = "ptr %args, i64 %start, i64 %end, i64 %gx, i64 %gy, i64 %gz"
COUNT = f"""
define void @count({SIGNATURE}) {{
  %p = load i64, ptr %args
  %ptr = inttoptr i64 %p to ptr
  %np = getelementptr i64, ptr %args, i64 1
  %n = load i64, ptr %np
  br label %program
program:
  %i = phi i64 [ %start, %0 ], [ %i2, %end_of_program ]
  %slot = mul i64 %i, 8
  %a = getelementptr i64, ptr %ptr, i64 %slot
  br label %work
work:
  %j = phi i64 [ 0, %program ], [ %j2, %work ]
  %j2 = add i64 %j, 1
  %v = load volatile i64, ptr %a
  %v2 = add i64 %v, 1
  store volatile i64 %v2, ptr %a
  %c = icmp slt i64 %j2, %n
  br i1 %c, label %work, label %end_of_program
end_of_program:
  %i2 = add i64 %i, 1
  %d = icmp slt i64 %i2, %end
  br i1 %d, label %program, label %done
done:
  ret void
}}
"""


def compile_ir(text: str) -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = "x86_64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    return machine.emit_object(llvm.parse_assembly(f'target triple = "{triple}"\n{text}'))


def artifact(binary: bytes, symbol: str, *signature: str, stack: int = 0, target: Target | None = None) -> Artifact:
    return Artifact(
        "0", target or get("cpu").target, symbol, signature, {}, Options(), Resources(0, stack, 0), "test", binary
    )


def cells(n: int) -> np.ndarray:
    return np.zeros((n, 8), np.int64)
