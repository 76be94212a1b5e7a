"""Keeps LLVM from merging a bit select into a masked instruction, which its AVX-512 patterns get wrong.

With AVX-512, ``select(c, (x & M) | (y & ~M), x)`` with one constant M for all lanes becomes a masked VPTERNLOG with M
broadcast from memory, whose truth table LLVM permutes the wrong way round (seen in LLVM 22: 0xb8 where 0xe4 is right).
A fence between the two keeps them apart. The search is wider than the fault: any ``or`` under a vector select.
"""

import re

_SELECT = re.compile(
    r"^(?P<head>\s*%\S+ = select (?:nsz )?<(?P<n>\d+) x i1> (?P<mask>%\S+), )"
    r"<\d+ x (?P<type>i32|i64|float|double)> (?P<yes>[^,]+(?:\([^)]*\))?), <\d+ x \w+> (?P<no>.+)$"
)
_OR = re.compile(r"^\s*(%\S+) = or (?:disjoint )?<")
_BITCAST = re.compile(r"^\s*(%\S+) = bitcast <[^>]*> (%\S+) to <")
_FLOAT = {"i32": "float", "i64": "double", "float": "float", "double": "double"}


def fence_bit_selects(text: str) -> str | None:
    """The module text with a fence at each ``or`` that a vector select takes; None where there is none."""
    unions: set[str] = set()
    lines: list[str] = []
    declared: set[str] = set()
    count = 0
    for line in text.splitlines():
        found = _OR.match(line)
        if found:
            unions.add(found[1])
        found = _BITCAST.match(line)
        if found and found[2] in unions:
            unions.add(found[1])
        found = _SELECT.match(line)
        if found and (found["yes"] in unions or found["no"] in unions):
            arms: list[str] = []
            vector, of = f"<{found['n']} x {found['type']}>", f"<{found['n']} x {_FLOAT[found['type']]}>"
            suffix = f"v{found['n']}f{32 if of.endswith('float>') else 64}"
            for arm in (found["yes"], found["no"]):
                if arm in unions:
                    name = f"%nbx.fence{count}"
                    count += 1
                    lines += [
                        f"  {name}.in = bitcast {vector} {arm} to {of}",
                        f"  {name}.out = call {of} @llvm.arithmetic.fence.{suffix}({of} {name}.in)",
                        f"  {name} = bitcast {of} {name}.out to {vector}",
                    ]
                    arm = name
                arms.append(f"{vector} {arm}")
            declared.add(f"declare {of} @llvm.arithmetic.fence.{suffix}({of})")
            line = found["head"] + ", ".join(arms)
        lines.append(line)
    return "\n".join([*lines, *sorted(declared)]) if count else None
