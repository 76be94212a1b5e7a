"""Calls like an example that share its kernels: smaller, overhanging, on other strides."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from nbxtensor.base.errors import NbxError
from nbxtensor.base.shapes import contiguous_strides, may_overlap_itself
from nbxtensor.certify.census import keys_of
from nbxtensor.certify.needs import Size, footprint
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, Spec, place, signature
from nbxtensor.kernel.launch import Plan, jobs_among
from nbxtensor.tensor.names import function
from nbxtensor.tuning.choose import forced, observed
from nbxtensor.tuning.key import LaunchKey

FREE = frozenset(("count", "elements", "inner"))
"""Sizes that only say how many programs there are."""
ENOUGH = 20_000
"""Elements of a small call, so that there are several programs."""
LIGHT, HEAVY, LARGE = 1 << 18, 1 << 22, 1 << 26
"""Elements up to which a call is tried with every content, with few, and with one; beyond, without references."""
_SIZES = (1, 2, 3, 4, 8, 16, 32, 48, 64, 112, 208, 496, 1008, 2064, 4112, 16_400, 32_784, 65_552)
_LESS = (1, 2, 3, 4, 7, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Case:
    """A call on which settings are proved.

    Attributes
    ----------
    what
        What it is there for.
    size
        ``light``: every content is tried; ``heavy``: few; ``large``: one; ``huge``: one, against the default alone.
    in_place
        The result is written into the first operand.
    """

    example: Example
    what: str
    size: Size = "light"
    in_place: bool = False


def family(key: LaunchKey) -> LaunchKey:
    """The key without the sizes that only say how many programs there are."""
    return replace(key, sizes=tuple((kind, 0 if kind in FREE else size) for kind, size in key.sizes))


class Search:
    """Looks for calls of the same family of keys as `key` that have the same candidates."""

    def __init__(self, key: LaunchKey, candidates: Sequence[object], device: Device) -> None:
        self._family = family(key)
        self._candidates = tuple(candidates)
        self.device = device

    def suits(self, example: Example) -> bool:
        """Whether the call asks for a setting of the family."""
        with suppress(NbxError, ValueError, IndexError):
            seen = keys_of(example, self.device)
            return any(family(k) == self._family and use.candidates == self._candidates for k, use in seen.items())
        return False


Axes = frozenset[tuple[int, int]]
"""Axes of a call that change together: (position of the tensor, axis)."""


def _moves(example: Example) -> list[tuple[int, Axes]]:
    """What may change without breaking the call, largest extents first: (extent, axes).

    All axes of one extent; the same axis of all operands; one axis of one operand.
    """
    specs = example.specs
    axes = [(p, d, n) for p, spec in enumerate(specs) for d, n in enumerate(spec.shape) if n > 1]
    found: dict[tuple[int, Axes], None] = {}
    for _, _, extent in axes:
        found[extent, frozenset((p, d) for p, d, n in axes if n == extent)] = None
    for position, axis, extent in axes:
        rank = len(specs[position].shape)
        same = frozenset((p, d) for p, d, n in axes if n == extent and len(specs[p].shape) == rank and d == axis)
        found[extent, same] = None
        found[extent, frozenset(((position, axis),))] = None
    return sorted(found, key=lambda move: -move[0])


def _with_extent(example: Example, axes: Axes, new: int) -> Example:
    """These axes get `new` elements; memory lies as it did."""
    numbers = iter(range(len(example.specs)))

    def change(spec: Spec) -> Spec:
        position = next(numbers)
        return _resized(spec, tuple(new if (position, d) in axes else n for d, n in enumerate(spec.shape)))

    return example.with_specs(change)


def _resized(spec: Spec, shape: tuple[int, ...]) -> Spec:
    """`spec` in another shape: axes nest as they did, and steps of 0 and of gaps stay, and those that overlap."""
    moving = [n if step else 1 for n, step in zip(spec.shape, spec.strides, strict=True)]
    if may_overlap_itself(moving, spec.strides):
        return Spec(shape, spec.strides, spec.dtype)
    if spec.strides == contiguous_strides(spec.shape):
        return Spec(shape, contiguous_strides(shape), spec.dtype)
    order = sorted(range(len(shape)), key=lambda d: (abs(spec.strides[d]), spec.shape[d] != 1))
    strides = [0] * len(shape)
    old_reach, reach = 1, 1
    for d in order:
        step = abs(spec.strides[d])
        if not step:
            continue
        gap = max(step - old_reach, 0) if step % old_reach else step // old_reach
        width = reach + gap if step % old_reach else reach * gap
        strides[d] = width if spec.strides[d] > 0 else -width
        old_reach, reach = step * spec.shape[d], width * shape[d]
    return Spec(shape, tuple(strides), spec.dtype)


def _elements(example: Example, device: Device) -> int:
    """Elements of the largest operand or result; of a call that cannot be made, of the largest operand."""
    with suppress(NbxError, ValueError, IndexError):
        return footprint(example, device).elements
    return max((s.size for s in example.specs), default=0)


def shrunk(example: Example, search: Search) -> Example:
    """The example with fewer programs, where it is large: extents that do not decide the kernel get small."""
    elements = _elements(example, search.device)
    for old, axes in _moves(example):
        if elements <= LIGHT:
            break
        odd = old % 16
        for size in _SIZES:
            new = size + odd if odd or size >= 16 else 16 * size
            smaller = _with_extent(example, axes, new)
            if new >= old or not search.suits(smaller):
                continue
            fewer = _elements(smaller, search.device)
            if ENOUGH <= fewer < elements:
                example, elements = smaller, fewer
                break
    return example


def _overhanging(example: Example, search: Search, most: int) -> Iterator[Example]:
    """Neighbouring sizes of every extent, whose last programs are not full."""
    found: set[Example] = {example}
    for old, axes in _moves(example):
        for new in (*(old - less for less in _LESS if less < old), old + 1):
            neighbour = _with_extent(example, axes, new)
            if neighbour not in found and search.suits(neighbour):
                yield neighbour
                found.add(neighbour)
                break
        if len(found) > most:
            return


def _strided(spec: Spec, how: str) -> Spec:
    """The same tensor, its rows further apart, backward or transposed."""
    shape, strides = spec.shape, list(spec.strides)
    if len(shape) < 2:
        return Spec(shape, tuple(-s for s in strides), spec.dtype) if how == "reversed" else spec
    if how == "sliced":
        wide = contiguous_strides((*shape[:-1], shape[-1] + 16))
        return Spec(shape, wide, spec.dtype)
    if how == "reversed":
        return Spec(shape, (-strides[0], *strides[1:]), spec.dtype)
    turned = contiguous_strides(tuple(reversed(shape)))
    return Spec(shape, tuple(reversed(turned)), spec.dtype)


def cases(key: LaunchKey, candidates: Sequence[object], example: Example, device: Device) -> list[Case]:
    """The calls on which the settings of `key` are proved for this example's operator.

    The example itself comes first; the others have its kernel, not always its artifacts.
    """
    search = Search(key, candidates, device)
    small = shrunk(example, search)
    size = _size(small, device)
    found = [Case(small, "as given" if small == example else "fewer programs", size)]
    if small != example:
        found.append(Case(example, "as given", "huge"))
    if size == "huge":
        return found
    found += [Case(one, "overhanging", size) for one in _overhanging(small, search, 1 if size == "large" else 3)]
    if size == "large":
        return found
    for how in ("sliced", "reversed", "transposed"):
        turned = small.with_specs(lambda spec: _strided(spec, how))  # noqa: B023 (called at once)
        if turned != small and search.suits(turned):
            found.append(Case(turned, how, size))
    if "out" in signature(function(small.operator)) and _fits_in_place(key, candidates, small, device):
        found.append(Case(small, "in place", size, in_place=True))
    return found


def _size(example: Example, device: Device) -> Size:
    elements = _elements(example, device)
    return "light" if elements <= LIGHT else "heavy" if elements <= HEAVY else "large" if elements <= LARGE else "huge"


def _fits_in_place(key: LaunchKey, candidates: Sequence[object], example: Example, device: Device) -> bool:
    """Whether the result can take the place of the first operand."""
    with suppress(NbxError):
        taken, _ = planned(key, candidates[0], example, device, in_place=True)
        return bool(taken)
    return False


def planned(
    key: LaunchKey, setting: object, example: Example, device: Device, in_place: bool = False
) -> tuple[list[tuple[LaunchKey, list[Plan]]], list[Job]]:
    """The plans that fall on a setting in a call, by key, and the jobs of all that it launches; nothing runs."""
    null = NullDevice(device.target, device.profile)
    operands = example.map(lambda spec: place(spec, null))
    more = {"out": operands[0]} if in_place else {}
    with forced(key.operator, key.variant, setting) as wish, observed():
        example.call(operands, null, **more)
    taken = [(k, [p for p in made if isinstance(p, Plan)]) for k, made in wish.taken]
    return taken, jobs_among(null.calls)
