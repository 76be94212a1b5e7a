"""AMD GPUs as a target that is compiled for and checked, without one being there."""

import re
from dataclasses import replace
from typing import Any

import pytest

import nbxtensor as nbx
from compile_kernels import spilling_kernel
from nbxtensor.base.errors import CompileError, DeviceError
from nbxtensor.compiler.compile import compile_fresh
from nbxtensor.compiler.hip import ARCHES, lower_to_amdgcn
from nbxtensor.compiler.hsaco import kernel_facts
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.scan_amdgcn import scan_amdgcn
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device import discover, get
from nbxtensor.device.artifact import Options, Target
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import load_profile, target_of


@kernel
def root_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    w = tl.max(v, axis=0)
    tl.store(out_ptr + i, tl.sqrt_rn(tl.div_rn(v, w)) + v * w)


@kernel
def product_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    acc = tl.zeros((N, N), tl.float32)
    for _ in range(4):
        v = tl.load(x_ptr + i)
        acc = tl.dot(v, v, acc, input_precision="ieee")
        x_ptr += N * N
    tl.store(out_ptr + i, acc)


@kernel
def half_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    tl.store(out_ptr.to(tl.pointer_type(tl.float16)) + i, (v * tl.fma(v, v, 1.0)).to(tl.float16))


@kernel
def careless_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.exp(v) / (v + 1))


SIGNATURE = (("x_ptr", "*fp32"), ("out_ptr", "*fp32"))


def job(fn=root_kernel, arch: str = "gfx942", n: int = 1024, warps: int = 4) -> Job:
    return Job(fn, SIGNATURE, (("N", n),), Options(num_warps=warps), frozenset(), Target("hip", arch))


def text_of(one: Job) -> str:
    return ttir(one.fn, dict(one.signature), dict(one.constants), one.options, one.divisible)


@pytest.mark.parametrize("arch", ARCHES)
def test_a_kernel_compiles_for_every_architecture(arch: str) -> None:
    made = lower_to_amdgcn(job(arch=arch))
    artifact = compile_fresh(job(arch=arch))
    assert artifact.binary == made.binary  # nothing in it depends on when or where it is made
    assert (artifact.symbol, artifact.target) == ("root_kernel", Target("hip", arch))
    facts = kernel_facts(artifact.binary, artifact.symbol)
    said = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)$", made.text, re.MULTILINE)}
    assert facts.vector_registers == said["vgpr_count"]
    assert facts.scalar_registers == said["sgpr_count"]
    assert facts.argument_bytes == said["kernarg_segment_size"] == 32
    assert facts.wave == said["wavefront_size"] == load_profile(arch).warp_size
    assert (facts.scratch_bytes, facts.spilled) == (0, 0)
    assert artifact.resources.registers == facts.vector_registers <= load_profile(arch).registers_per_thread
    assert artifact.resources.shared_bytes == 4 * 4  # one partial maximum per warp
    assert not scan_amdgcn(made.text, text_of(job()))


def test_scratch_memory_is_seen() -> None:
    spilled = compile_fresh(replace(job(spilling_kernel, n=16_384, warps=1), signature=SIGNATURE[:1]))
    assert spilled.resources.stack_bytes > 0
    assert kernel_facts(spilled.binary, spilled.symbol).spilled > 0


@pytest.mark.parametrize("arch", ARCHES)
def test_a_dot_is_a_chain_of_fused_steps(arch: str) -> None:
    one = job(product_kernel, arch, 32)
    made = lower_to_amdgcn(one)
    assert "v_mfma" not in made.text
    assert "v_wmma" not in made.text
    assert not scan_amdgcn(made.text, text_of(one))


def test_approximations_are_found() -> None:
    for arch in ARCHES:
        one = job(careless_kernel, arch)
        found = {finding.rule for finding in scan_amdgcn(lower_to_amdgcn(one).text, text_of(one))}
        assert any("v_exp_f32 is an approximation" in rule for rule in found), arch


def scan_line(line: str, ttir_text: str = "") -> list[str]:
    return [finding.rule for finding in scan_amdgcn(line, ttir_text)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("v_rcp_f32_e32 v1, v2", "reciprocals"),
        ("v_rsq_f32_e32 v1, v2", "approximation"),
        ("v_log_f32_e64 v1, |v2|", "approximation"),
        ("v_s_exp_f32 s1, s2", "approximation"),
        ("v_fma_f32 v1, v2, v3, v4", "contracted"),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]", "contracted"),
        ("v_dual_mul_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6", "contracted"),
        ("v_mad_f32 v1, v2, v3, v4", "flushed"),
        ("v_mul_f32_e64 v1, v2, v3 mul:2", "flushed"),
        ("v_add_f16_e32 v1, v2, v3", "16-bit"),
        ("v_fma_mixlo_f16 v1, v2, v3, 0", "16-bit"),
        ("v_dot2_f32_f16 v1, v2, v3, v4", "16-bit"),
        ("v_dot2c_f32_bf16 v1, v2, v3", "16-bit"),
        ("v_fma_mix_f32 v1, v2, v3, v4", "contracted"),
        ("v_mfma_f32_32x32x2f32 a[0:15], v1, v2, a[0:15]", "matrix units"),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "matrix units"),
        ("global_atomic_add_f32 v0, v1, s[0:1]", "atomics"),
        ("ds_add_f32 v0, v1", "atomics"),
        ("v_cvt_pkrtz_f16_f32_e32 v1, v2, v3", "rounding"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", "rounding"),
        ("s_denorm_mode 0", "rounding"),
        ("s_swappc_b64 s[30:31], s[4:5]", "outside the kernel"),
        (".amdhsa_float_denorm_mode_32 0", "denorm mode"),
        (".amdhsa_float_round_mode_16_64 3", "round mode"),
    ],
)
def test_each_forbidden_instruction_is_found(line: str, rule: str) -> None:
    assert any(rule in found for found in scan_line(f"\t{line}"))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [(nbx.sqrt, "float16"), (nbx.nn.rsqrt, "float16"), (nbx.divide, "float16"), (nbx.sqrt, "float64")],
)
def test_exact_roots_and_quotients_are_no_findings(function: Any, dtype: str, arch: str) -> None:
    """LLVM makes those of float16 in float32, where no element of float16 is denormal, and roots of float64 of fma."""
    device = NullDevice(target_of(arch))
    x = nbx.empty((4096,), dtype, device)
    function(x, x) if function is nbx.divide else function(x)
    (call,) = device.calls
    assert not scan_amdgcn(lower_to_amdgcn(call.job).text, text_of(call.job))


@pytest.mark.parametrize(
    ("line", "ttir_text"),
    [
        ("v_rsq_f32_e32 v1, v2", "!tt.ptr<f16> tt.precise_divf"),
        ("v_rsq_f32_e32 v1, v2", "!tt.ptr<f32> tt.precise_sqrt"),
        ("v_exp_f32_e32 v1, v2", "!tt.ptr<f16> tt.precise_sqrt"),
        ("v_mad_f32 v1, v2, v3, v4", "!tt.ptr<f16> tt.precise_sqrt"),
        ("v_mad_f32 v1, v2, v3, v4", "!tt.ptr<f32> tt.precise_divf"),
    ],
)
def test_what_is_meant_for_float16_alone_is_found_elsewhere(line: str, ttir_text: str) -> None:
    assert scan_line(f"\t{line}", ttir_text)


@pytest.mark.parametrize(
    "line",
    [
        "v_add_f32_e32 v1, v2, v3",
        "v_sqrt_f32_e32 v1, v2",
        "v_rcp_iflag_f32_e32 v1, v2",
        "v_dot4_i32_iu8 v92, v100, v96, v92 neg_lo:[1,1,0]",
        "v_dot2_u32_u16 v1, v2, v3, v4",
        "v_cvt_f16_f32_e32 v1, v2",
        "global_atomic_add v0, v1, s[0:1]",
        ".amdhsa_float_denorm_mode_32 3",
        "v_rcp_f32_e32 v1, v2\nv_div_fixup_f32 v1, v2, v3, v4",
    ],
)
def test_exact_instructions_are_not(line: str) -> None:
    assert not scan_line(line)
    assert not scan_line("v_fmac_f32_e32 v1, v2, v3", "%3 = math.fma %0, %1, %2 : tensor<8xf32>")


def test_a_root_keeps_denormals() -> None:
    """Triton's own setting starts a root from v_rsq, which takes a denormal for zero."""
    text = lower_to_amdgcn(job()).text
    assert "v_sqrt_f32" in text
    assert "v_rsq_f32" not in text


@pytest.mark.parametrize("arch", ARCHES)
def test_a_product_keeps_the_sign_of_its_zero_in_16_bits(arch: str) -> None:
    """LLVM makes v_fma_mixlo(a, b, 0) of a product that is rounded to float16, which turns -0.0 into 0.0."""
    one = job(half_kernel, arch)
    text = lower_to_amdgcn(one).text
    assert "_f16" in text
    assert "v_fma_mixlo" not in text
    assert not scan_amdgcn(text, text_of(one))


def test_a_file_that_is_no_hsaco_is_an_error() -> None:
    binary = compile_fresh(job()).binary
    for broken in (b"", b"\x7fELF", binary[:500], binary.replace(b"AMDGPU", b"AMDGPV")):
        with pytest.raises(CompileError, match="not a readable hsaco"):
            kernel_facts(broken, "root_kernel")
    with pytest.raises(CompileError, match="no facts about other"):
        kernel_facts(binary, "other")


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(CompileError, match="gfx906.*allowed: gfx90a"):
        compile_fresh(replace(job(), target=Target("hip", "gfx906")))
    assert [target_of(a) for a in ("gfx942", "sm_90", "x86-64-v3")] == [
        Target("hip", "gfx942"),
        Target("cuda", "sm_90"),
        Target("cpu", "x86-64-v3"),
    ]
    with pytest.raises(DeviceError, match="vax"):
        target_of("vax")


def test_the_device_says_that_it_does_not_run_yet() -> None:
    for name in ("hip", "hip:0"):
        with pytest.raises(DeviceError, match="compiled and checked for AMD GPUs, but not yet run"):
            get(name)
        with pytest.raises(DeviceError, match="null:gfx942"):
            nbx.zeros(3, device=name)
    assert not any(name.startswith("hip") for name in discover())


def test_the_null_device_records_what_would_run() -> None:
    null = get("null:gfx942")
    assert (null.target, null.profile.warp_size) == (Target("hip", "gfx942"), 64)
    null.clear()
    nbx.nn.softmax(nbx.ones((4, 100), device=null.name))
    assert null.calls[-1].job.target == Target("hip", "gfx942")
    null.clear()


@pytest.mark.parametrize("extreme", [nbx.max, nbx.min])
def test_bits_that_become_float16_are_not_fenced(extreme: Any) -> None:
    """LLVM fails at a fence of a float that is read out of a scalar register."""
    device = NullDevice(target_of("gfx942"))
    extreme(nbx.empty((4, 2048), "float16", device), axis=1)
    (call,) = device.calls
    assert lower_to_amdgcn(call.job).binary
