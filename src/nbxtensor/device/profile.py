"""Facts about architectures, read from ``profiles/<arch>.toml``."""

import tomllib
from functools import cache
from pathlib import Path

from nbxtensor.base.errors import DeviceError
from nbxtensor.device.protocol import Profile

_FOLDER = Path(__file__).parent / "profiles"


def known_profiles() -> list[str]:
    """Architectures that have a profile."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


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
