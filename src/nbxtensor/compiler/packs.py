"""The packs that this process uses, and looking up a job in them.

Those that were named with `use` come first (``--pack``), then those in the knob NBX_PACKS, then those beside the
package. A pack is opened once; what happens to its file later is not noticed, as with a shared library.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

from nbxtensor.base.errors import PackError
from nbxtensor.base.knobs import packs as knob
from nbxtensor.base.locks import ForkLock
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.pack_file import FUNCTION, SUFFIX, Pack
from nbxtensor.device.artifact import Artifact

SHIPPED = Path(__file__).parents[1] / "packs"
"""Where the packs that come with the package are."""

_named: tuple[Path, ...] = ()
_lock = ForkLock()


@cache
def _opened(path: Path) -> Pack:
    return Pack(path)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.suffix == SUFFIX)
    except OSError as error:
        mend = f"let it be read, or name its packs one by one in {knob.name}"
        raise PackError(FUNCTION, f"cannot list the folder {folder}", got=error.strerror, mend=mend) from error


def _named_in_knob(path: Path) -> list[Path]:
    """The packs that one part of NBX_PACKS names."""
    if not path.is_dir():
        return [path]
    found = _listed(path)
    if not found:
        raise PackError(
            knob.name,
            "the folder holds no pack",
            got=path,
            allowed=f"files *{SUFFIX}",
            mend="make one with nbxtensor pack",
        )
    return found


@cache
def _opened_all(named: tuple[Path, ...], in_knob: tuple[Path, ...], shipped: Path) -> tuple[Pack, ...]:
    paths = [*named, *(p for part in in_knob for p in _named_in_knob(part))]
    if shipped.is_dir():
        paths += _listed(shipped)
    return tuple(_opened(path) for path in dict.fromkeys(path.absolute() for path in paths))


def in_use() -> tuple[Pack, ...]:
    """The packs in use, the first to be searched first.

    Raises
    ------
    PackError
        One of them is missing, damaged or malformed.
    """
    return _opened_all(_named, knob.get(), SHIPPED)


def use(path: Path) -> Pack:
    """Have this process look into a pack, after those it was told of before and ahead of all others."""
    global _named
    pack = _opened(path.absolute())
    with _lock:
        if path.absolute() not in _named:
            _named = (*_named, path.absolute())
    return pack


def key_of(job: Job) -> str | None:
    """The key of the artifact that `find` gives; nothing is inflated."""
    return next((key for pack in in_use() if (key := pack.key_of(job.identity)) is not None), None)


def find_for_older(job: Job) -> Artifact | None:
    """The packed artifact of `job` for an older target whose binaries run on that of `job`; see `find`."""
    for target in job.target.also_runs:
        found = find(replace(job, target=target))
        if found is not None:
            return found
    return None


def find(job: Job) -> Artifact | None:
    """The artifact of `job` out of the first pack that has it, whatever compiler is installed here.

    Raises
    ------
    PackError
        A pack is damaged, or it has something else under the identity of this job.
    """
    for pack in in_use():
        found = pack.find(job.identity)
        if found is not None:
            if (found.target, found.signature, found.options) != (job.target, job.flat_signature, job.options):
                raise PackError(
                    FUNCTION,
                    f"{pack.path}: there is another kernel under the identity of {job.name}",
                    got=f"{found.symbol}({', '.join(found.signature)}) for {found.target}",
                    mend="make it again with nbxtensor pack",
                )
            return found
    return None
