"""Every switch of nbxtensor: one typed entry each, read from the environment when it is used.

``nbxtensor.base.knobs.cache_dir.get()`` gives the value; an unset or empty variable gives the default. A variable that
starts with ``NBX_`` and is not in this file gives one warning per process, since a misspelt switch does nothing.
"""

import os
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from nbxtensor.base.errors import ArgumentError

T = TypeVar("T")

PREFIX = "NBX_"
MOST_THREADS = 4096
REGISTRY: dict[str, "Knob[object]"] = {}
_checked_names = False


class Knob(Generic[T]):
    """One switch.

    Attributes
    ----------
    name
        The environment variable (``"NBX_DEVICE"``).
    allowed
        What it takes, in words.
    doc
        What it does, in one line.
    """

    def __init__(self, name: str, parse: Callable[[str], T], default: Callable[[], T], allowed: str, doc: str) -> None:
        self.name = name
        self.allowed = allowed
        self.doc = doc
        self._parse = parse
        self._default = default
        REGISTRY[name] = self  # pyright: ignore[reportArgumentType]

    def get(self) -> T:
        """The value now: the environment's, else the default."""
        _check_names()
        text = os.environ.get(self.name, "")
        if not text:
            return self._default()
        try:
            return self._parse(text)
        except ValueError:
            raise ArgumentError(
                self.name, "the variable has a bad value", got=repr(text), allowed=self.allowed
            ) from None

    def set(self, value: str) -> None:
        """Set the variable, for this process and those that it starts."""
        os.environ[self.name] = value

    @contextmanager
    def override(self, value: str) -> Generator[None]:
        """Set the variable inside a ``with`` block (tests, command line)."""
        before = os.environ.get(self.name)
        os.environ[self.name] = value
        try:
            yield
        finally:
            if before is None:
                del os.environ[self.name]
            else:
                os.environ[self.name] = before


def _check_names() -> None:
    global _checked_names
    if _checked_names:
        return
    _checked_names = True
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in REGISTRY:
            import difflib  # rarely needed, and not free

            close = difflib.get_close_matches(name, REGISTRY, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(REGISTRY))}"
            warnings.warn(f"{name} is not a switch of nbxtensor{hint}", stacklevel=3)


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _bytes(text: str) -> int:
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    size = int(number.removesuffix(unit)) * _UNITS[unit]
    if size < 0:
        raise ValueError(text)
    return size


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _threads(text: str) -> int:
    if _positive(text) > MOST_THREADS:
        raise ValueError(text)
    return int(text)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _paths(text: str) -> tuple[Path, ...]:
    try:
        return tuple(Path(part).expanduser() for part in text.split(os.pathsep) if part)
    except RuntimeError as error:  # nobody has that home
        raise ValueError(text) from error


def _cpu_level(text: str) -> str | None:
    if text not in CPU_LEVELS:
        raise ValueError(text)
    return text


def usable_cpus() -> int:
    """Processors that this process may use at once: its affinity, and the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return count if quota == "max" else max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return count


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nbxtensor"


CGROUP = Path("/sys/fs/cgroup")
CPU_LEVELS = ("x86-64-v3", "x86-64-v4", "aarch64-v8.2")

device: Knob[str] = Knob(
    "NBX_DEVICE", str, lambda: "cpu", "the name of a device", "device of new tensors when none is given"
)
cache_dir: Knob[Path] = Knob(
    "NBX_CACHE_DIR",
    lambda text: Path(text).expanduser(),
    _default_cache_dir,
    "a directory",
    "where compiled kernels are kept",
)
models_dir: Knob[Path] = Knob(
    "NBX_MODELS_DIR",
    lambda text: Path(text).expanduser(),
    lambda: cache_dir.get() / "models",
    "a directory",
    "where the demonstration's model files are kept",
)
cache_bytes: Knob[int] = Knob(
    "NBX_CACHE_BYTES",
    _bytes,
    lambda: 2**30,
    "a number of bytes, with K, M, G or T if wanted",
    "size the kernel cache may grow to before the oldest entries go",
)
num_threads: Knob[int] = Knob(
    "NBX_NUM_THREADS",
    _threads,
    usable_cpus,
    f"an int from 1 to {MOST_THREADS}",
    "threads that run kernels on the CPU",
)
compile_workers: Knob[int] = Knob(
    "NBX_COMPILE_WORKERS",
    _positive,
    usable_cpus,
    "an int from 1",
    "processes that compile kernels side by side",
)
cpu_level: Knob[str | None] = Knob(
    "NBX_CPU_LEVEL",
    _cpu_level,
    lambda: None,
    ", ".join(CPU_LEVELS),
    "instruction set that CPU kernels are compiled for; the best one the machine has by default",
)
tables_dir: Knob[Path] = Knob(
    "NBX_TABLES",
    lambda text: Path(text).expanduser(),
    lambda: cache_dir.get() / "tables",
    "a directory",
    "where your own certificates are kept and looked for first",
)
certified_only: Knob[bool] = Knob(
    "NBX_CERTIFIED_ONLY",
    _switch,
    lambda: False,
    "0 or 1",
    "refuse launches that no certificate covers",
)
packs: Knob[tuple[Path, ...]] = Knob(
    "NBX_PACKS",
    _paths,
    lambda: (),
    f"files *.nbxpack or folders of them, with {os.pathsep!r} between them",
    "packs of compiled kernels that are looked into before those of the package",
)
