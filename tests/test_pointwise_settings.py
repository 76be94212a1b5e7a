"""The candidates of the pointwise skeleton: the same bits from all, no stack, a profile that allows none."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tools.variants import TARGETS

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.device import get
from nbxtensor.device.profile import load_profile, target_of
from nbxtensor.kernel.math import for_16_bit, sin
from nbxtensor.kernel.pointwise import pointwise
from nbxtensor.kernel.pointwise_settings import flat_candidates
from nbxtensor.ops.arithmetic import add_value
from numeric import same_bits

KINDS: dict[str, Any] = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_give_the_same_bits(kind: str, device: str) -> None:
    """A function with a rare branch over the whole block, and plain sums; sizes that overhang every block."""
    dtype = dtypes.dtype(kind)
    wide: DType = dtypes.float64 if kind == "float64" else dtypes.float32
    for n in (1, 8191, 8193):
        x = (np.random.default_rng(n).standard_normal(n) * 1e3).astype(KINDS[kind])
        x[n // 2] = 3e38 if kind != "bfloat16" else 1e38
        t = nbx.asarray(x, device=device)
        settings = flat_candidates(t.device.profile, dtype.itemsize)
        assert len(settings) >= 3
        results = [np.asarray(nbx.sin(t).to_device("cpu")), np.asarray((t + t).to_device("cpu"))]
        for setting in settings:
            total = pointwise("add", add_value, (t, t), (wide, wide), dtype, setting=setting)
            assert same_bits(np.asarray(total.to_device("cpu")), results[1]), setting
            if kind == "float32":
                one = pointwise("sin", sin, (t,), (wide,), dtype, setting=setting)
                assert same_bits(np.asarray(one.to_device("cpu")), results[0]), setting


@pytest.mark.parametrize("arch", ["sm_70", "sm_90", "sm_100", "gfx942"])
def test_candidates_have_no_stack(arch: str) -> None:
    null = get(f"null:{arch}")
    null.clear()
    for kind, values in ((dtypes.float32, sin), (dtypes.bfloat16, for_16_bit(sin, dtypes.bfloat16))):
        x = nbx.empty((100_001,), kind, device=null.name)
        for setting in flat_candidates(null.profile, kind.itemsize):
            pointwise("sin", values, (x,), (dtypes.float32,), kind, setting=setting)
    artifacts = compile_many([call.job for call in null.calls])
    assert len(artifacts) >= 3
    assert [a.resources.stack_bytes for a in artifacts] == [0] * len(artifacts)


@pytest.mark.parametrize("arch", [*TARGETS, "restricted"])
def test_every_target_has_candidates(arch: str) -> None:
    profile = load_profile(arch)
    assert target_of(arch).arch == arch
    for itemsize in (1, 2, 4, 8):
        for setting in flat_candidates(profile, itemsize):
            assert setting.block <= profile.reduce_tile_max
            assert setting.block % (setting.num_warps * profile.warp_size) == 0


def test_no_candidate_is_left() -> None:
    tiny = replace(load_profile("sm_90"), reduce_tile_max=64)
    with pytest.raises(CompileError, match="no setting suits the device; got sm_90, elements of 4 bytes"):
        flat_candidates(tiny, 4)
