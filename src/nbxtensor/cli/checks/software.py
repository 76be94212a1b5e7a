"""Python, packages and compilers: what is installed, and whether that was ever tried."""

import importlib.util
import platform
import re
import sys
import tempfile
from importlib import metadata

from nbxtensor import __version__
from nbxtensor.base.errors import NbxError
from nbxtensor.cli import trial
from nbxtensor.cli.checks.core import Check, Machine
from nbxtensor.compiler import packs

PYTHONS = ((3, 11), (3, 13))
"""The first and the last Python that is tested."""
RANGES: dict[str, dict[str, str]] = {
    "": {"numpy": ">=2.1,<3", "ml_dtypes": ">=0.5,<0.7"},
    "compile": {"triton": ">=3.6,<3.10", "llvmlite": ">=0.46,<0.51"},
    "cuda": {"cuda-bindings": ">=12.9,<14"},
    "onnx": {"onnx": ">=1.17,<2"},
    "cli": {"click": ">=8.1,<9", "rich": ">=13,<16", "tokenizers": ">=0.20,<1", "safetensors": ">=0.4,<1"},
}
"""Extra ("": none) -> package -> the versions that were tried, as in ``pyproject.toml``."""
MODULES = {"cuda-bindings": "cuda.bindings"}
INSTALL = "pip install 'nbxtensor[{}]'"


def present(package: str) -> bool:
    """Whether a package can be found by an import."""
    try:
        return importlib.util.find_spec(MODULES.get(package, package)) is not None
    except (ImportError, ValueError):
        return False


def installed_version(package: str) -> str | None:
    """Version of a package, or None if it is not there."""
    if not present(package):
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str | None]:
    """Package -> version of all that nbxtensor uses; None: not installed."""
    packages = (package for group in RANGES.values() for package in group)
    return {"nbxtensor": __version__, "python": platform.python_version()} | {p: installed_version(p) for p in packages}


def numbers(version: str) -> tuple[int, ...]:
    """(3, 6, 0) of ``3.6.0`` and of ``3.6.0rc1+cu128``."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


def within(version: str, tried: str) -> bool:
    """Whether a version lies in a range such as ``>=3.6,<3.10``."""
    low, high = (numbers(part.lstrip("<>=")) for part in tried.split(","))
    return low <= numbers(version) < high


def check_python(check: Check, machine: Machine) -> None:
    """The interpreter and the system it runs on."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    check.facts = {
        "python": name,
        "executable": sys.executable,
        "system": platform.system(),
        "machine": platform.machine(),
    }
    check.summary = f"{name}, {platform.system()} {platform.machine()}"
    first, last = (f"{major}.{minor}" for major, minor in PYTHONS)
    if sys.implementation.name != "cpython" or not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        check.warning(f"{name} was not tried with nbxtensor", f"use CPython {first} to {last}")
    if sys.platform != "linux":
        check.problem(f"{platform.system()} is not supported", "use Linux")


def check_packages(check: Check, machine: Machine) -> None:
    """Versions of the packages that nbxtensor uses."""
    found = versions()
    check.facts = dict(found)
    absent = [name for name, version in found.items() if version is None]
    check.summary = f"nbxtensor {__version__}, {len(found) - len(absent) - 2} packages"
    if absent:
        check.summary += f"; not installed: {', '.join(absent)}"
    for extra, group in RANGES.items():
        for package, tried in group.items():
            version = found[package]
            name = f"nbxtensor[{extra}]" if extra else "nbxtensor"
            if version is None:
                if not extra:
                    check.problem(f"{package} is not installed", f"pip install {name}")
            elif numbers(version) and not within(version, tried):
                check.warning(
                    f"{package} {version} is outside of the versions that were tried ({tried})",
                    f"pip install '{package}{tried}'",
                )


def check_compilers(check: Check, machine: Machine) -> None:
    """Triton and LLVM, which make kernels that no pack and no cache has."""
    absent = [package for package in RANGES["compile"] if not present(package)]
    check.facts = {"installed": [p for p in RANGES["compile"] if p not in absent], "absent": absent}
    broken = "" if absent else trial.try_import(tuple(RANGES["compile"])).error
    if not absent and not broken:
        check.summary = ", ".join(f"{p} {installed_version(p)}" for p in RANGES["compile"])
        _check_temporary(check)
        return
    try:
        count = len(packs.in_use())
    except NbxError:  # the check of packs says more
        count = 0
    check.facts["packs"] = count
    text = broken or f"{' and '.join(absent)} cannot be found"
    mend = INSTALL.format("compile") if absent else f"pip install --force-reinstall {' '.join(RANGES['compile'])}"
    if count:
        check.warning(f"no compiler: {text}; only kernels that are packed or cached run", mend)
    else:
        check.problem(
            f"no compiler: {text}, and no pack of compiled kernels is in use", f"{mend}, or name a pack in NBX_PACKS"
        )


def _check_temporary(check: Check) -> None:
    try:
        check.facts["temporary"] = tempfile.gettempdir()
    except OSError as error:
        check.problem(
            f"no folder for temporary files can be written, and GPU kernels are compiled in one ({error.strerror})",
            "set TMPDIR to a folder that can be written",
        )
