"""Operations that a universal kernel must not contain, in the assembly of AMD GPUs; see `nbxtensor.compiler.scan`."""

import re
from collections.abc import Iterator

from nbxtensor.compiler.scan import Finding

_INSTRUCTION = re.compile(r"([a-z]+_[a-z0-9_]+?)(?:_e32|_e64|_dpp|_sdwa|_e64_dpp)?(?:\s|$)")
_DIRECTIVE = re.compile(r"\.amdhsa_float_(round|denorm)_mode_(?:32|16_64) (\d)")
_MODES = {"round": "0", "denorm": "3"}
_HALF = re.compile(
    r"v_(?:pk_)?(?:add|sub|subrev|mul|fma|fmac|fmaak|fmamk|mad|mac|min|max|minimum|maximum|rcp|rsq|sqrt)\w*_b?f16"
)
_FUSED = re.compile(r"v_(?:pk_)?(?:fma|fmac|fmaak|fmamk)_f(?:32|64)|v_fma_mix_f32")
_MIXED = re.compile(r"v_(?:fma|mad)_mix(?:lo|hi)|v_mad_mix|v_dot\dc?_b?f\d")
_FLUSHING = re.compile(r"v_(?:mad|mac|madak|madmk)(?:_legacy)?_f32")
_APPROXIMATE = re.compile(r"v_s?_?(?:exp|log|sin|cos|rsq|rcp_legacy|rsq_legacy)_f(?:16|32)$")
_ATOMIC = re.compile(r"\w+_(?:atomic_)?(?:pk_)?(?:add|min|max)(?:_num)?_(?:rtn_)?f(?:32|64)$|\w+_atomic_pk_add_\w+")
_MODIFIER = re.compile(r"\s(?:mul:[24]|div:2)\b")


def scan_amdgcn(text: str, ttir: str) -> list[Finding]:
    """Forbidden instructions and modes in the assembly of a universal kernel.

    Parameters
    ----------
    ttir
        The TTIR that it was made from: it says where divisions, roots and fused multiply-adds are meant.
    """
    found: list[Finding] = []
    exact = {"rcp": 0, "fixup": 0}
    fused = re.search(r"math\.(?:fma|sqrt)|tt\.(?:precise_|dot )|arith\.div|arith\.rem", ttir) is not None
    # Division of 64-bit integers goes through floats that are whole numbers: nothing is denormal, the end is exact. So
    # it is in the exact divisions and roots of float16, which LLVM makes of those of float32 between conversions.
    normal = re.search(r"arith\.(?:div|rem)[su]i", ttir) is not None
    normal_division = normal or ("tt.ptr<f16>" in ttir and "tt.precise_divf" in ttir)
    half_root = "tt.ptr<f16>" in ttir and "tt.precise_sqrt" in ttir
    last = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split(";")[0].strip()
        mode = _DIRECTIVE.match(line)
        if mode and mode[2] != _MODES[mode[1]]:
            found.append(Finding(f"the {mode[1]} mode of floats is not IEEE's", "compile with denormals", number, line))
        match = None if line.startswith(".") or line.endswith(":") else _INSTRUCTION.match(line)
        if match is None:
            continue
        for part in (p.strip() for p in line.split("::")):  # two instructions in one on RDNA
            name = re.split(r"_e32|_e64|_dpp|_sdwa|\s", part)[0].replace("v_dual_", "v_")
            if name.startswith(("v_rcp_f", "v_div_fixup_f")):
                exact["rcp" if "rcp" in name else "fixup"] += 1
                last = number
            found += [
                Finding(rule, mend, number, line)
                for rule, mend in _rules(name, part, fused, normal_division, half_root)
            ]
    if exact["rcp"] > exact["fixup"] and not normal:
        rule = f"{exact['rcp'] - exact['fixup']} reciprocals are not part of an exact division"
        found.append(Finding(rule, "use tl.div_rn", last, f"{exact['rcp']} v_rcp, {exact['fixup']} v_div_fixup"))
    return found


def _rules(name: str, line: str, fused: bool, normal: bool, half_root: bool) -> Iterator[tuple[str, str]]:
    if _APPROXIMATE.match(name) and not (half_root and name == "v_rsq_f32"):
        yield f"{name} is an approximation", "use the function of nbxtensor.kernel.math, tl.div_rn or tl.sqrt_rn"
    if (_FLUSHING.match(name) and not normal) or _MODIFIER.search(line):
        yield "denormals are flushed", "compile with denormals, and without contraction"
    if _FUSED.match(name) and not fused:
        yield "a multiplication and an addition were contracted", "compile with enable_fp_fusion=False"
    if _HALF.match(name) or _MIXED.match(name):
        yield "16-bit arithmetic differs between devices", "convert to float32 first"
    if name.startswith(("v_mfma", "v_wmma", "v_swmmac", "v_smfma")):
        yield "matrix units fix no order", "use float32, or declare the guarantee 'device'"
    if _ATOMIC.match(name) and not name.startswith(("v_", "s_")):
        yield "float atomics have no order", "write partial results and add them in a second launch"
    if "pkrtz" in name or name.startswith(("s_setreg", "s_denorm_mode", "s_round_mode")):
        yield f"{name} leaves IEEE's rounding", "compile with denormals and the default rounding"
    if name.startswith(("s_swappc", "s_call")):
        yield "a function outside the kernel is called", "keep to Triton's language"
