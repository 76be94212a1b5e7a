"""Decides, before anything is emitted, which tensors are put into memory and which stay expressions.

A tensor is put into memory (at its place in the program) where it must be: a load that a later store may overwrite, the
source of a gather, an operand whose expression would grow too large; and where that saves work: a dear value that is
needed in several places.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbxtensor.compiler.cpu.arith import ELEMENTWISE
from nbxtensor.compiler.cpu.guard import can_bound_pointer
from nbxtensor.compiler.cpu.index import Index, var_dim
from nbxtensor.compiler.cpu.ir import Block, Function, Op, Value
from nbxtensor.compiler.cpu.reach import Element, is_deferred, reachable, same_place
from nbxtensor.compiler.cpu.views import VIEWS, is_pair_reduce

STORES = {"tt.store"}
ATOMICS = {"tt.atomic_rmw", "tt.atomic_cas"}
EFFECTS = STORES | ATOMICS
LOOPS = {"scf.for", "scf.while"}

_DEAR = 12
_COPIES = 8
_LOAD_COST = 3
_SLOW_COST = 6
_SLOW = {"arith.divf", "tt.precise_divf", "tt.precise_sqrt", "math.sqrt", "arith.divsi", "arith.remsi"}


@dataclass(slots=True)
class Schedule:
    """The decisions. As `Ends` it says where expressions end.

    Attributes
    ----------
    materialised
        Results of deferred operations that are put into memory.
    inductive
        Loop-carried arguments and results that are the initial tensor plus scalars: argument -> (initial value, steps).
    groups
        Last store of a group -> all its stores; they share one loop nest.
    guarded
        Last store of a group -> loads that stay expressions if a check at run time finds them apart from its stores.
    last_uses
        Operation -> tensors of its block that nothing needs once it is emitted.
    """

    materialised: set[Value] = field(default_factory=set[Value])
    inductive: dict[Value, tuple[Value, tuple[Value, ...]]] = field(
        default_factory=dict[Value, tuple[Value, tuple[Value, ...]]]
    )
    groups: dict[Op, list[Op]] = field(default_factory=dict[Op, list[Op]])
    guarded: dict[Op, list[Value]] = field(default_factory=dict[Op, list[Value]])
    last_uses: dict[Op, list[Value]] = field(default_factory=dict[Op, list[Value]])

    def is_end(self, value: Value) -> bool:
        if value in self.materialised:
            return True
        if value in self.inductive:
            return False
        return value.op is None or not is_deferred(value.op)

    def origin(self, value: Value) -> Value | None:
        found = self.inductive.get(value)
        return found[0] if found else None


def full_index(shape: tuple[int, ...]) -> Index:
    """Every dimension run through by a variable of its own."""
    return tuple(var_dim(d + 1, size) for d, size in enumerate(shape))


def uniform_scalar(value: Value) -> Value | None:
    """The scalar that a tensor repeats, as a value that can be read as a scalar (splat) or a constant."""
    op = value.op
    while op is not None and op.name in VIEWS:
        value = op.operands[0]
        op = value.op
    if op is not None and (
        op.name == "tt.splat" or (op.name == "arith.constant" and not isinstance(op.constant, list))
    ):
        return value
    return None


def find_inductive(function: Function, schedule: Schedule) -> None:
    """Carried tensors whose next value is the last one plus scalars."""
    for op in function.body.walk():
        if op.name != "scf.for":
            continue
        body = op.regions[0]
        for i, argument in enumerate(body.args[1:]):
            if not argument.type.shape or argument.type.elem[0] not in "pi" or argument.type.elem == "i1":
                continue
            steps = _steps(body.terminator.operands[i], argument)
            if steps is not None:
                schedule.inductive[argument] = (op.operands[3 + i], steps)
                schedule.inductive[op.results[i]] = (op.operands[3 + i], steps)


def _steps(value: Value, argument: Value) -> tuple[Value, ...] | None:
    steps: list[Value] = []
    while value is not argument:
        op = value.op
        if op is None or op.name not in ("tt.addptr", "arith.addi"):
            return None
        left, right = op.operands
        step = uniform_scalar(right)
        if step is not None:
            value = left
        elif op.name == "arith.addi" and (step := uniform_scalar(left)) is not None:
            value = right
        else:
            return None
        steps.append(step)
    return tuple(steps)


def loops_of(op: Op) -> list[Op]:
    """The loops that `op` is in, innermost first."""
    found: list[Op] = []
    block = op.parent
    while block is not None and block.owner is not None:
        if block.owner.name in LOOPS:
            found.append(block.owner)
        block = block.owner.parent
    return found


class Scheduler:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.ops = list(function.body.walk())
        self.schedule = Schedule()
        self.roots: dict[Value, set[Op]] = {}
        self.reads: dict[Value, int] = {}
        self.weights: list[int] = []
        self.copies: dict[Value, int] = {}
        self.cheap: set[Value] = set()
        self.effects = [op for op in self.ops if op.name in EFFECTS]

    def run(self) -> Schedule:
        find_inductive(self.function, self.schedule)
        self.group_stores(self.function.body)
        self.forward()
        for op in reversed(self.ops):
            self.visit(op)
        self.find_last_uses()
        return self.schedule

    def find_last_uses(self) -> None:
        for value, roots in self.roots.items():
            home = value.op.parent if value.op is not None else None
            if home is None or not self.schedule.is_end(value):
                continue
            ends = [self.within(home, group[-1] if (group := self.group_of(root)) else root) for root in roots]
            if ends and all(end is not None and end is not home.terminator for end in ends):
                last = max((end for end in ends if end is not None), key=lambda op: op.position)
                self.schedule.last_uses.setdefault(last, []).append(value)

    @staticmethod
    def within(home: Block, op: Op) -> Op | None:
        """The operation of block `home` that is or contains `op`."""
        at: Op | None = op
        while at is not None and at.parent is not home:
            at = at.parent.owner if at.parent is not None else None
        return at

    # --- store groups

    def group_stores(self, block: Block) -> None:
        group: list[Op] = []

        def flush() -> None:
            if group:
                self.schedule.groups[group[-1]] = list(group)
                group.clear()

        for op in block.ops:
            if op.name in STORES and op.operands[0].type.shape:
                if group and not self.joins(group, op):
                    flush()
                group.append(op)
            elif op.regions or op.name == "tt.load" or not self.harmless(op):
                flush()
            for region in op.regions:
                self.group_stores(region)
        flush()

    @staticmethod
    def harmless(op: Op) -> bool:
        return (
            op.name in ELEMENTWISE
            or op.name == "arith.constant"
            or (is_deferred(op) and bool(op.results[0].type.shape))
        )

    def joins(self, group: list[Op], op: Op) -> bool:
        shape = op.operands[0].type.shape
        if group[0].operands[0].type.shape != shape:
            return False
        index = full_index(shape)
        mine = (op.operands[0], index)
        return all(same_place((other.operands[0], index), mine, self.schedule) for other in group)

    # --- costs, in program order

    def forward(self) -> None:
        for op in self.ops:
            number = len(self.weights)
            self.weights.append(self.weight(op))
            if not op.results or not is_deferred(op):
                continue
            mask = 1 << number
            copies = 1
            for operand in op.operands:
                source = self.schedule.origin(operand) or operand
                mask |= self.reads.get(source, 0)
                copies = max(copies, self.copies.get(source, 1))
            if is_pair_reduce(op):
                copies = self.double(op, copies)
            for result in op.results:
                self.reads[result] = mask
                self.copies[result] = copies

    def double(self, op: Op, copies: int) -> int:
        """A reduction over pairs evaluates its operands twice: keep that from piling up."""
        dear = any(self.cost(o) > 2 * _DEAR for o in op.operands)
        if 2 * copies > (2 if dear else _COPIES):
            for operand in op.operands:
                self.materialise(operand)
            return 2
        return 2 * copies

    def weight(self, op: Op) -> int:
        if not op.results or not op.results[0].type.shape:
            return 0
        name = op.name
        if name == "tt.load":
            return _LOAD_COST
        if name in VIEWS or name in ("arith.constant", "tt.splat", "tt.make_range"):
            self.cheap.update(op.results)
            return 0
        if name in ("arith.addi", "arith.subi", "arith.muli", "arith.extsi", "arith.extui", "tt.addptr", "tt.bitcast"):
            if all(o in self.cheap or o in self.schedule.inductive for o in op.operands):
                self.cheap.update(op.results)
                return 0
            return 1
        return _SLOW_COST if name in _SLOW else 1

    def cost(self, value: Value) -> int:
        mask, total = self.reads.get(value, 0), 0
        while mask:
            low = mask & -mask
            total += self.weights[low.bit_length() - 1]
            mask ^= low
        return total

    def materialise(self, value: Value) -> None:
        """Put `value` (behind views and shifts) into memory, if it is an expression."""
        while True:
            origin = self.schedule.origin(value)
            if origin is not None:
                value = origin
            elif value.op is not None and value.op.name in VIEWS and value.op.operands[0].type.size == value.type.size:
                value = value.op.operands[0]
            else:
                break
        if not self.schedule.is_end(value) and value not in self.cheap:
            self.schedule.materialised.add(value)
            self.copies[value] = 1
            self.reads[value] = 0

    # --- roots, against program order

    def add_roots(self, value: Value, roots: set[Op]) -> None:
        if value.type.shape:
            self.roots.setdefault(value, set()).update(roots)

    def visit(self, op: Op) -> None:
        if op.name == "scf.for":
            self.visit_for(op)
        elif op.name == "scf.yield" and op.parent is not None and op.parent.owner is not None:
            loop = op.parent.owner
            for i, operand in enumerate(op.operands):
                if loop.name != "scf.for" or op.parent.args[1 + i] not in self.schedule.inductive:
                    self.add_roots(operand, {op})
        elif op.results and is_deferred(op):
            for result in op.results:
                if result.type.shape:
                    self.decide(op, result)
            roots: set[Op] = set()
            for result in op.results:
                ends_here = result in self.schedule.materialised or not result.type.shape  # scalars are never deferred
                roots |= {op} if ends_here else self.roots.get(result, set())
            for operand in op.operands:
                self.add_roots(operand, roots)
            if op.name == "tt.gather" and roots:
                self.schedule.materialised.add(op.operands[0])
        else:
            for operand in op.operands:
                self.add_roots(operand, {op})

    def visit_for(self, op: Op) -> None:
        for i, init in enumerate(op.operands[3:]):
            argument, result = op.regions[0].args[1 + i], op.results[i]
            if argument in self.schedule.inductive:
                self.add_roots(init, self.roots.get(argument, set()) | self.roots.get(result, set()))
            else:
                self.add_roots(init, {op})

    def decide(self, op: Op, value: Value) -> None:
        roots = self.roots.get(value, set())
        if value in self.schedule.materialised or not roots or value in self.cheap:
            return
        many = len(roots) > 1 or self.repeated(op, value, roots)
        if (many and self.cost(value) >= _DEAR) or (op.name == "tt.load" and not self.safe(op, roots)):
            self.schedule.materialised.add(value)

    def repeated(self, op: Op, value: Value, roots: set[Op]) -> bool:
        """Whether an expression would be evaluated more often than it has elements."""
        mine = set(loops_of(op))
        for root in roots:
            if any(loop not in mine for loop in loops_of(root)):
                return True
            if any(o.type.size > value.type.size for o in root.operands):
                return True
        return False

    # --- aliasing

    def safe(self, load: Op, roots: set[Op]) -> bool:
        """Whether a load may stay an expression, maybe under a guard."""
        if any(self.overtaken(load, root) for root in roots):
            return False
        checks: list[Op] = []
        for group in {id(g): g for g in map(self.group_of, roots) if g}.values():
            clashes = self.clashes(load, group)
            if not all(can_bound_pointer(pointer, at, self.schedule) for pointer, at in clashes):
                return False
            if clashes:
                checks.append(group[-1])
        for last in checks:
            self.schedule.guarded.setdefault(last, []).append(load.result)
        return True

    def overtaken(self, load: Op, root: Op) -> bool:
        """Whether another effect may write the memory that `load` reads before `root` uses it."""
        group = self.group_of(root)
        if any(load.position < e.position < root.position for e in self.effects if e not in group):
            return True
        mine = set(loops_of(load))
        for loop in loops_of(root):
            if loop not in mine and any(loop in loops_of(effect) for effect in self.effects):
                return True
        return root.name in ATOMICS

    def group_of(self, root: Op) -> list[Op]:
        for group in self.schedule.groups.values():
            if root in group:
                return group
        return []

    def clashes(self, load: Op, group: list[Op]) -> list[Element]:
        """Pointers of `load` and of stores in a nest that may meet at different times; empty if there are none."""
        shape = group[0].operands[0].type.shape
        index = full_index(shape)
        starts = [(o, index) for store in group for o in store.operands]
        found: list[Element] = []
        for value, at in reachable(starts, self.schedule):
            if value.op is not load:
                continue
            mine = (load.operands[0], at)
            others = [(store.operands[0], index) for store in group]
            others = [other for other in others if not same_place(mine, other, self.schedule)]
            if others:
                found += [mine, *others]
        return found


def schedule(function: Function) -> Schedule:
    return Scheduler(function).run()
