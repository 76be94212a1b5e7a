"""Launch keys: what a setting is chosen, proved and looked up by."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nbxtensor.device.artifact import Target
from nbxtensor.tuning.buckets import bucket


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """One kind of launch: calls with equal keys take the same setting.

    Attributes
    ----------
    operator
        Whose candidate space it is, and the name of its table; operators that share a skeleton share it.
    variant
        Which of its kernels, where the operands decide that.
    sizes
        (kind, bucket) of each size, in a fixed order.
    flags
        What else the candidates depend on: layouts, options.
    dtypes
        Of the operands and the result, or their bytes per element where nothing else matters.
    arch
        Architecture.
    call
        A call with this key as text, or ""; not part of the key.
    """

    operator: str
    variant: str
    sizes: tuple[tuple[str, int], ...]
    flags: tuple[str, ...]
    dtypes: tuple[str, ...]
    arch: str
    call: str = field(default="", compare=False)

    def __str__(self) -> str:
        sizes = ",".join(f"{kind}={size}" for kind, size in self.sizes)
        parts = (self.operator, self.variant, sizes, ",".join(self.flags), ",".join(self.dtypes), self.arch)
        return "|".join(part or "-" for part in parts)

    @property
    def command(self) -> str:
        """The command that certifies this key."""
        return certify_command(self.call, self.arch)


def certify_command(call: str, arch: str) -> str:
    """The command that certifies a call for an architecture; with "" for the call, the usual ones."""
    calls = f" --op {shlex.quote(call)}" if call else ""
    return f"nbxtensor certify{calls} --arch {arch}"


def launch_key(
    operator: str,
    variant: str,
    sizes: Mapping[str, int],
    dtypes: Iterable[object],
    target: Target,
    flags: Iterable[str] = (),
) -> LaunchKey:
    """The key of a launch, for launches, census and certifier alike.

    Parameters
    ----------
    sizes
        Exact sizes by kind (`nbxtensor.tuning.buckets.BUCKETS`), in the order of the key.
    dtypes
        Dtypes or bytes per element.
    """
    bucketed = tuple((kind, bucket(kind, size)) for kind, size in sizes.items())
    return LaunchKey(operator, variant, bucketed, tuple(flags), tuple(map(str, dtypes)), target.arch)
