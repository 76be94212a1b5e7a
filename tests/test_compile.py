"""Jobs, their keys, and binaries for CUDA targets (compiled without a GPU)."""

import pickle
from importlib import metadata

import pytest

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler import jobs
from nbxtensor.compiler.compile import compile_fresh
from nbxtensor.compiler.cuda import assemble, capability, lower_to_ptx
from nbxtensor.compiler.jobs import Job, compiler_version
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.device.artifact import Options, Target

FACTOR = 0.5
_ABI_VERSION = 8  # where ELF keeps it


@kernel
def scaled(x):
    return tl.floor(x * FACTOR)


@kernel
def doubled(x):
    return x * 2.0


@kernel
def map_kernel(x_ptr, out_ptr, n, shape, FN: tl.constexpr, BLOCK: tl.constexpr):
    """Applies FN."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n * shape[0] + shape[1]
    x = tl.load(x_ptr + i, mask=mask)
    tl.store(out_ptr + i, FN(x) * x + x, mask=mask)


@kernel
def wrong_kernel(x_ptr):
    tl.store(x_ptr, no_such_name)  # noqa: F821


def job(arch: str = "sm_90", *, fn: KernelFunction = scaled, block: object = 256, **changes: object) -> Job:
    fields = {
        "fn": map_kernel,
        "signature": (("x_ptr", "*fp32"), ("out_ptr", "*fp32"), ("n", "i64"), ("shape", ("i64", "i64"))),
        "constants": (("FN", fn), ("BLOCK", block)),
        "options": Options(),
        "divisible": frozenset({"x_ptr", "n", "shape.0"}),
        "target": Target("cuda", arch),
    }
    return Job(**{**fields, **changes})


def test_a_job_becomes_a_cubin():
    artifact = compile_fresh(job())
    assert artifact.binary[:4] == b"\x7fELF"
    assert artifact.symbol == "map_kernel"
    assert artifact.signature == ("*fp32", "*fp32", "i64", "i64", "i64")
    assert artifact.constants["BLOCK"] == 256
    assert str(artifact.constants["FN"]).endswith(".scaled")
    assert 8 <= artifact.resources.registers <= 255
    assert artifact.resources.stack_bytes == 0
    assert "triton" in artifact.compiler


def test_builds_are_reproducible():
    assert compile_fresh(job()).binary == compile_fresh(job()).binary


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_architectures(arch: str):
    artifact = compile_fresh(job(arch))
    assert artifact.resources.registers > 0
    if capability(arch) <= 90:
        assert artifact.binary[_ABI_VERSION] == 7, "CUDA 12 drivers load no newer cubins"


def test_ptx_keeps_denormals_and_does_not_contract():
    text = lower_to_ptx(job()).text
    assert "mul.rn.f32" in text
    assert ".ftz" not in text
    assert "fma.rn" not in text
    assert ".loc" not in text
    assert ".file" not in text


def test_the_assembler_does_not_contract_either():
    from nbxtensor.compiler.cuda import _assembler

    ptx = lower_to_ptx(job(fn=doubled))
    sass = _disassemble(assemble(ptx, "sm_90"))
    assert "FMUL" in sass
    assert "FFMA" not in sass
    assert _assembler(90).ptx_version < 90


def _disassemble(cubin: bytes) -> str:
    import subprocess
    import tempfile

    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        return subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout


def test_ptxas_settings_from_the_environment_change_nothing(monkeypatch: pytest.MonkeyPatch):
    plain = compile_fresh(job()).binary
    monkeypatch.setenv("PTXAS_OPTIONS", "--fmad=true")
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm80")
    assert compile_fresh(job()).binary == plain


def test_key_depends_on_everything_that_changes_the_binary():
    base = job()
    others = [
        job("sm_80"),
        job(fn=doubled),
        job(block=512),
        job(options=Options(num_warps=8)),
        job(divisible=frozenset({"x_ptr"})),
        job(signature=(("x_ptr", "*fp16"), *base.signature[1:])),
        job(signature=(*base.signature[:3], ("shape", ("i64", "i32")))),
        job(block=True),
        job(block=1),
        job(block=1.0),
        job(block=0.0),
        job(block=-0.0),
        job(block="1"),
        job(block=(1, 2)),
        job(block=None),
    ]
    keys = {base.key, *(o.key for o in others)}
    assert len(keys) == len(others) + 1
    assert job().key == base.key
    assert job(constants=tuple(reversed(base.constants))).key == base.key


def test_identity_leaves_the_compiler_out(monkeypatch: pytest.MonkeyPatch):
    before = job()
    assert before.key != before.identity
    monkeypatch.setattr("nbxtensor.compiler.jobs.compiler_version", lambda kind: "another")
    after = job()
    assert after.identity == before.identity
    assert after.key != before.key


def test_version_names_the_compiler_and_our_lowering():
    assert compiler_version("cpu").startswith("triton 3.")
    assert "llvmlite" in compiler_version("cpu")
    assert compiler_version("cpu").split()[-1] != compiler_version("cuda").split()[-1]


@pytest.mark.parametrize("package", ["triton", "llvmlite", "numpy", "no-such-package"])
def test_versions_are_those_of_the_metadata(package: str):
    try:
        want = metadata.version(package)
    except metadata.PackageNotFoundError:
        want = "absent"
    assert jobs._version(package) == want


def test_a_constant_of_another_kind_is_refused():
    with pytest.raises(CompileError, match=r"BLOCK.*list"):
        _ = job(block=[1]).key


def test_kernels_and_jobs_pickle_by_name():
    assert pickle.loads(pickle.dumps(job())).key == job().key


def test_a_local_kernel_does_not_pickle():
    @kernel
    def local(x):
        return x

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(local)


def test_errors_name_the_kernel():
    bad = job(fn=scaled, signature=(("x_ptr", "*fp32"),), constants=(), divisible=frozenset())
    with pytest.raises(CompileError, match=r"map_kernel lacks .*out_ptr"):
        compile_fresh(bad)
    with pytest.raises(CompileError, match=r"(?s)wrong_kernel.*no_such_name"):
        compile_fresh(Job(wrong_kernel, (("x_ptr", "*fp32"),), (), Options(), frozenset(), Target("cuda", "sm_90")))
    with pytest.raises(CompileError, match="no argument nothing"):
        compile_fresh(job(divisible=frozenset({"nothing"})))
    with pytest.raises(CompileError, match="sm_70"):
        compile_fresh(job("gfx942"))
    with pytest.raises(CompileError, match="kind of target"):
        compile_fresh(job(target=Target("tpu", "v5")))
