"""TTIR text -> relocatable object: the entry of the CPU compiler."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.cpu import control, dot, reduce, sequential, stores
from nbxtensor.compiler.cpu.builder import Builder
from nbxtensor.compiler.cpu.ir import Function
from nbxtensor.compiler.cpu.llvm import TRIPLE, argument_loads, compile_text
from nbxtensor.compiler.cpu.lower import Lowering
from nbxtensor.compiler.cpu.parse import parse
from nbxtensor.device.artifact import Resources, Target

EMITTERS = (control, dot, reduce, sequential, stores)  # importing them registers what they emit
_DEEP = 20_000


@contextmanager
def _deep_recursion() -> Generator[None, None, None]:
    """Expressions are evaluated recursively; a long chain needs more frames than Python allows by default."""
    saved = sys.getrecursionlimit()
    sys.setrecursionlimit(max(saved, _DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(saved)


def llvm_text(function: Function, symbol: str) -> tuple[str, Builder]:
    """The LLVM IR of a kernel: a loop over program ids around its body."""
    ids = ("%pid0", "%pid1", "%pid2")
    low = Lowering(function, ids, ("%gx", "%gy", "%gz"))
    b = low.b
    body = b.cur
    entry = Builder()
    entry.count = 1_000_000
    low.env.scalars.update(argument_loads(entry, function.args))
    low.block(function.body)
    end = b.cur
    end.terminator = "br label %next"
    parts = [
        f'target triple = "{TRIPLE}"',
        f"define void @{symbol}(ptr %args, i64 %start, i64 %end, i64 %gx, i64 %gy, i64 %gz) #0 {{",
        "entry:",
        *b.allocas,
        *entry.cur.lines,
        "br label %head",
        "head:",
        "%lin = phi i64 [ %start, %entry ], [ %lin.next, %next ]",
        "%more = icmp slt i64 %lin, %end",
        "br i1 %more, label %program, label %exit",
        "program:",
        "%pid0 = urem i64 %lin, %gx",
        "%row = udiv i64 %lin, %gx",
        "%pid1 = urem i64 %row, %gy",
        "%pid2 = udiv i64 %row, %gy",
        f"br label %{body.label}",
        b.body_text(),
        "next:",
        "%lin.next = add nsw i64 %lin, 1",
        "br label %head",
        "exit:",
        "ret void",
        "}",
        *b.declarations.values(),
        'attributes #0 = { nounwind "probe-stack"="inline-asm" }',
    ]
    return "\n".join(parts), b


def compile_ttir(text: str, target: Target, symbol: str) -> tuple[bytes, Resources]:
    """Compile the kernel in a TTIR module to native code.

    Parameters
    ----------
    text
        TTIR; with ``loc(...)`` in it, errors name source lines.
    target
        ``Target("cpu", "x86-64-v3")`` or ``"x86-64-v4"``. The level alone decides the code; all give the same results.
    symbol
        Name of the entry point in the object.

    Returns
    -------
    tuple
        A relocatable ELF object and the stack it needs.

    Raises
    ------
    CompileError
        An operation is not supported; the message names it and its source line.
    """
    if target.kind != "cpu":
        raise CompileError("compile for cpu", "not a CPU target", got=target)
    with _deep_recursion():
        module, builder = llvm_text(parse(text), symbol)
    return compile_text(module, target.arch), Resources(registers=0, stack_bytes=builder.stack_bytes, shared_bytes=0)
