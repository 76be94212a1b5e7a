"""Assembles ``device/cpu_pool.s`` into ``device/cpu_pool_code.py``; needs llvmlite.

``python tools/assemble_pool.py`` rewrites the module after a change of the source; a test checks that it is up to date.
"""

import textwrap
from pathlib import Path

import llvmlite.binding as llvm

from nbxtensor.device.elf import ElfObject

_HERE = Path(__file__).parent.parent / "src/nbxtensor/device"
_HEADER = '''"""The worker pool's machine code, made from ``cpu_pool.s`` by ``tools/assemble_pool.py``; do not edit."""

LAUNCH = {launch:#x}
WORKER = {worker:#x}
CODE = bytes.fromhex(
    """
{code}
    """
)
'''


def assemble(source: str) -> bytes:
    """An ELF object from x86-64 assembly."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    quoted = source.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
    module = llvm.parse_assembly(f'target triple = "x86_64-unknown-linux-gnu"\nmodule asm "{quoted}"\n')
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(reloc="pic")
    return bytes(machine.emit_object(module))


def generate() -> str:
    """The text of ``cpu_pool_code.py``."""
    image = ElfObject(assemble((_HERE / "cpu_pool.s").read_text()))
    if image.relocations:
        raise ValueError("cpu_pool.s must not need relocations")
    return _HEADER.format(
        launch=image.symbols["nbx_launch"].value,
        worker=image.symbols["nbx_worker"].value,
        code=textwrap.indent("\n".join(textwrap.wrap(image.section(".text").hex(), 96)), "    "),
    )


if __name__ == "__main__":
    (_HERE / "cpu_pool_code.py").write_text(generate())
