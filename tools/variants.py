"""The kernels that the declared operators' samples launch, as compile jobs for any target.

Jobs that differ in sizes alone (tile shapes, warps) count as one variant; the one with the largest tile stands for it.
"""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import golden_cases
from nbxtensor.base.errors import DTypeError
from nbxtensor.compiler.jobs import Job, describe
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import known_profiles, load_profile, target_of
from nbxtensor.device.protocol import Profile

Launch = tuple[str, str, Job]
"""Sample, operator's file and job."""

ROOT = Path(__file__).parents[1]
TARGETS = [t for t in known_profiles() if target_of(t).kind in ("cpu", "cuda", "hip")]


@dataclass
class Variant:
    """A kernel with its constants (sizes aside) and argument types.

    Attributes
    ----------
    label
        For people: kernel, functions and types.
    case
        The first sample that launches it.
    files
        Files of the operators that launch it.
    """

    label: str
    case: str
    job: Job
    files: set[str] = field(default_factory=set[str])


def functions_of(job: Job) -> list[KernelFunction]:
    """The kernel and every kernel function among its constants."""
    found = [job.fn]

    def visit(value: object) -> None:
        if isinstance(value, KernelFunction):
            found.append(value)
        elif isinstance(value, tuple):
            for one in cast("tuple[object, ...]", value):
                visit(one)

    for _, value in job.constants:
        visit(value)
    return found


def _is_size(value: object) -> bool:
    return type(value) is int


def _size(job: Job) -> tuple[int, int]:
    """Orders the jobs of a variant: elements per thread, roughly, then warps."""
    product = math.prod(v for _, v in job.constants if isinstance(v, int) and type(v) is int and v > 0)
    return product // job.options.num_warps, job.options.num_warps


def label(job: Job) -> str:
    """Kernel, functions, argument types, and what else its constants say."""
    parts = [getattr(v, "name", None) or str(describe(v)) for _, v in job.constants if not _is_size(v)]
    short = [p.rsplit(".", 1)[-1] for p in parts if p not in ("None", "()")]
    return f"{job.fn.name}[{', '.join(short)}]({', '.join(job.flat_signature)})"


def launches(
    arch: str, profile: Profile | None = None, wanted: Callable[[str], bool] = lambda file: True
) -> Iterator[Launch]:
    """Sample, operator's file and job of everything that the samples launch on `arch`."""
    device = NullDevice(target_of(arch), profile or load_profile(arch))
    for case, op, args in golden_cases.cases():
        file = "src/" + op.function.__module__.replace(".", "/") + ".py"
        if not wanted(file):
            continue
        device.clear()
        with contextlib.suppress(DTypeError):
            op.function(*[golden_cases.on_device(a, device) for a in args])
        for call in device.calls:
            yield case, file, cast("Any", call).job


def variants(found: Iterable[Launch]) -> dict[str, Variant]:
    """The variants among launches, by what tells them apart."""
    result: dict[str, Variant] = {}
    for case, file, job in found:
        key = "\n".join(
            [
                job.fn.source_hash,
                repr(job.signature),
                *(f"{n} {_identity(v)}" for n, v in job.constants if not _is_size(v)),
            ]
        )
        held = result.get(key)
        if held is None:
            result[key] = held = Variant(label(job), case, job)
        elif _size(job) > _size(held.job):
            held.job = job
        held.files.add(file)
    return result


def _identity(value: object) -> str:
    if isinstance(value, KernelFunction):
        return value.source_hash
    if isinstance(value, tuple):
        return f"({', '.join(map(_identity, cast('tuple[object, ...]', value)))})"
    return str(getattr(value, "name", repr(value)))


def kernel_hashes(found: Iterable[Launch]) -> dict[str, dict[str, str]]:
    """Per operator's file, the source hash of each kernel and kernel function that its samples launch."""
    result: dict[str, dict[str, str]] = {}
    for _, file, job in found:
        for fn in functions_of(job):
            result.setdefault(file, {})[f"{fn.__module__}.{fn.__qualname__}"] = fn.source_hash[:16]
    return result


def jobs_hashes(found: Iterable[Launch]) -> dict[str, str]:
    """Per file, the hash of everything that its launches compile but the compilers: sources, types, settings."""
    jobs: dict[str, set[str]] = {}
    for _, file, job in found:
        jobs.setdefault(file, set()).add(job.identity)
    return {file: hashlib.sha256("".join(sorted(some)).encode()).hexdigest()[:16] for file, some in jobs.items()}


def fixed_sample(found: dict[str, Variant], whole: bool = True) -> list[Variant]:
    """A small, fixed part of the variants.

    Parameters
    ----------
    whole
        One of each kernel with each function, and at least one of each operator's file; else one of each kernel. Those
        that work on float32 are preferred.
    """
    chosen: dict[tuple[str, ...], Variant] = {}
    covered: set[str] = set()
    for variant in sorted(found.values(), key=lambda v: ("/float32/" not in v.case, v.case, v.label)):
        names = tuple(fn.name for fn in functions_of(variant.job))
        if not whole:
            chosen.setdefault(names[:1], variant)
        elif names not in chosen or not variant.files <= covered:
            chosen[names if names not in chosen else (*names, variant.label)] = variant
            covered |= variant.files
    return sorted(chosen.values(), key=lambda v: v.label)
