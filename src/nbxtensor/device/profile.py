"""Facts about architectures, read from ``profiles/<arch>.toml``."""

import tomllib
from functools import cache
from pathlib import Path

from nbxtensor.base.errors import DeviceError
from nbxtensor.device.artifact import Target
from nbxtensor.device.protocol import Profile

_FOLDER = Path(__file__).parent / "profiles"
_KINDS = {"x86": "cpu", "sm_": "cuda", "gfx": "hip", "res": "none"}


def known_profiles() -> list[str]:
    """Architectures that have a profile."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def target_of(arch: str) -> Target:
    """The target of an architecture: ``sm_90`` is one of cuda, ``gfx942`` of hip, ``x86-64-v3`` of cpu.

    Nothing compiles for ``restricted``.

    Raises
    ------
    DeviceError
        If `arch` is none of these.
    """
    kind = _KINDS.get(arch[:3])
    if kind is None:
        raise DeviceError(
            "target", "not an architecture that kernels are compiled for", got=arch, allowed=known_profiles()
        )
    return Target(kind, arch)


@cache
def load_profile(arch: str) -> Profile:
    """The profile of `arch`.

    Raises
    ------
    DeviceError
        If there is none.
    """
    if arch not in known_profiles():
        raise DeviceError("profile", "no facts are known about this architecture", got=arch, allowed=known_profiles())
    facts = tomllib.loads((_FOLDER / f"{arch}.toml").read_text())
    facts["dtypes"] = frozenset(facts["dtypes"])
    return Profile(arch=arch, **facts)
