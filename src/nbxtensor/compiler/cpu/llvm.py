"""Has LLVM turn the module text into a relocatable object.

The text is close to what the machine does (vectors, hoisted and shared values, split loops), so two cheap passes before
code generation are enough: the usual pipelines cost five times as much and give the same speed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from nbxtensor.base.errors import CompileError, MissingDependencyError
from nbxtensor.compiler.cpu.builder import Builder
from nbxtensor.compiler.cpu.fence import fence_bit_selects
from nbxtensor.compiler.cpu.ir import Type, Value
from nbxtensor.compiler.cpu.lanes import Pointer, Uniform, int_const

TRIPLE = "x86_64-unknown-linux-gnu"
LEVELS = ("x86-64-v3", "x86-64-v4")


@cache
def _binding() -> Any:
    try:
        import llvmlite.binding as binding  # LLVM is large: only when something is compiled
    except ImportError as error:
        raise MissingDependencyError(
            "compile for cpu", "llvmlite is not installed", mend="pip install nbxtensor[compile]"
        ) from error
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


@cache
def _machine(level: str) -> Any:
    target = _binding().Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=level, features="", opt=2, reloc="pic", codemodel="small")


def argument_loads(builder: Builder, args: list[Value]) -> dict[Value, Uniform | Pointer]:
    """Read the run-time arguments from their 8-byte slots."""
    found: dict[Value, Uniform | Pointer] = {}
    for i, value in enumerate(args):
        slot = builder.put(f"getelementptr i64, ptr %args, i64 {i}")
        found[value] = _argument(builder, slot, value.type)
    return found


def _argument(b: Builder, slot: str, type: Type) -> Uniform | Pointer:
    if type.elem == "ptr":
        return Pointer(type.pointee, b.put(f"load ptr, ptr {slot}, align 8"), int_const(0, "i64"))
    if type.elem in ("f32", "f64"):
        llvm = "float" if type.elem == "f32" else "double"
        return Uniform(type.elem, b.put(f"load {llvm}, ptr {slot}, align 8"))
    wide = b.put(f"load i64, ptr {slot}, align 8")
    if type.elem == "i64":
        return Uniform("i64", wide)
    bits = "i16" if type.elem in ("f16", "bf16") else type.elem
    return Uniform(type.elem, b.put(f"trunc i64 {wide} to {bits}"))


def compile_text(text: str, level: str) -> bytes:
    """LLVM IR text -> object, for an x86-64 level."""
    if level not in LEVELS:
        raise CompileError("compile for cpu", "unknown CPU level", got=level, allowed=LEVELS)
    binding = _binding()
    machine = _machine(level)
    module = binding.parse_assembly(text)
    module.verify()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options())
    manager = binding.create_new_function_pass_manager()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    for function in module.functions:
        if not function.is_declaration:
            manager.run(function, builder)
    if level == "x86-64-v4":
        fenced = fence_bit_selects(str(module))
        if fenced is not None:
            module = binding.parse_assembly(fenced)
    return bytes(machine.emit_object(module))
