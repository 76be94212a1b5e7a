"""Whether the compilers are installed, and the error where a kernel needs them and they are not."""

from collections.abc import Sequence
from importlib.util import find_spec

from nbxtensor.base.errors import NotPackedError
from nbxtensor.base.text import counted
from nbxtensor.compiler import packs
from nbxtensor.compiler.jobs import COMPILERS, Job, describe

INSTALL = "install the compilers (pip install 'nbxtensor[compile]')"


def missing_compilers(kind: str) -> list[str]:
    """Packages that compiling for this kind of target needs and that are not installed."""
    return [name for name in COMPILERS.get(kind, ()) if not _is_there(name)]


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # whoever keeps it from being imported may say so in these ways
        return False


def launch_text(job: Job) -> str:
    """Types, constants and settings of a job in one line."""
    types = ", ".join(f"{name}: {kind}" for name, kind in job.signature)
    constants = "".join(f", {name}={describe(value)}" for name, value in job.constants)
    return f"({types}){constants}, {counted(job.options.num_warps, 'warp')}"


def mend(command: str) -> str:
    """The two ways out; `command` makes a pack that has what is missing."""
    return f"{INSTALL}, or make a pack where they are installed ({command}) and name it in {packs.knob.name}"


def require_compilers(jobs: Sequence[Job]) -> None:
    """Check that `jobs`, which are in no pack and in no store, can be compiled here.

    Raises
    ------
    NotPackedError
        They cannot; names the first of them that is missing.
    """
    absent = {kind: missing_compilers(kind) for kind in {job.target.kind for job in jobs}}
    for job in jobs:
        packages = absent[job.target.kind]
        if packages:
            more = f" (and {counted(len(jobs) - 1, 'more kernel')})" if len(jobs) > 1 else ""
            searched = ", ".join(str(pack.path) for pack in packs.in_use()) or "none"
            raise NotPackedError(
                "compile",
                f"kernel {job.name} for {job.target}{more} is in no pack and in no cache, and {' and '.join(packages)} "
                f"cannot be imported to compile it; packs in use: {searched}",
                got=launch_text(job),
                mend=mend(f"nbxtensor pack --arch {job.target} --ops OPERATOR -o my.nbxpack"),
            )
