"""Draws random kernels: the frame (tiles, buffers, control flow, stores). The operations are in fuzz_operations.py."""

import re
from collections.abc import Callable

import numpy as np

import fuzz_numeric as fn
from fuzz_operations import OPERATIONS
from fuzz_program import Branch, Case, Env, Loop, Shape, Statement, Var

BUFFER = 4096
HEADER = """from nbxtensor.compiler.source import kernel, tl


@kernel
def _add(a, b):
    return a + b


@kernel
def _mul(a, b):
    return a * b


@kernel
def _max(a, b):
    return tl.maximum(a, b)


@kernel
def _min(a, b):
    return tl.minimum(a, b)


@kernel
def _and(a, b):
    return a & b


@kernel
def _or(a, b):
    return a | b


@kernel
def _xor(a, b):
    return a ^ b

"""


def numel(shape: Shape) -> int:
    return int(np.prod(shape, dtype=int))


class Generator:
    """Builds one kernel.

    Parameters
    ----------
    in_place
        Whether it may write memory that it also reads at other places: a GPU's threads would race there.

    Attributes
    ----------
    scopes
        Names that are visible, innermost scope last.
    """

    def __init__(self, seed: int, in_place: bool = True) -> None:
        self.seed = seed
        self.in_place = in_place
        self.rng = np.random.default_rng(seed)
        self.memory: dict[str, np.ndarray] = {}
        self.storage: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.scopes: list[list[Var]] = [[]]
        self.blocks: list[list[Statement | Loop | Branch]] = [[]]
        self.count = 0
        self.roots: dict[Var, Var] = {}
        self.used: set[str] = set()
        self.tame = self.chance(0.3)
        self.dtypes = [self.pick(kinds) for kinds in (fn.INTS, ("i32", "i64"), fn.FLOATS, ("fp32", "fp32", "fp64"))]
        self.tile: Shape = self.pick([(64,), (256,), (32,), (16, 16), (4, 64), (32, 8), (2, 4, 16), (1, 32), (128, 1)])
        self.programs = self.pick([1, 1, 2, 3])
        self.grid = (self.programs, 1, 1) if self.chance(0.7) else (1, self.programs, 1)
        self.pid = Var("p0" if self.grid[0] == self.programs else "p1", "i32", ())
        self.depth = 0
        self.alone = self.programs == 1

    # Drawing

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    @property
    def visible(self) -> list[Var]:
        return [v for scope in self.scopes for v in scope]

    def find(self, dtypes=None, shape: Shape | None = None, where: Callable[[Var], bool] | None = None) -> Var | None:
        """A visible name, later ones more often."""
        found = [
            v
            for v in self.visible
            if (dtypes is None or v.dtype in dtypes)
            and (shape is None or v.shape == shape)
            and (where is None or where(v))
        ]
        if not found:
            return None
        return found[-1 - min(int(self.rng.exponential(4.0)), len(found) - 1)]

    def partner(self, var: Var, dtype: str | None = None) -> Var | None:
        """A name that broadcasts to `var`; `var` itself only if there is no other."""

        def fits(o: Var) -> bool:
            if o.shape == ():
                return True
            return len(o.shape) == len(var.shape) and all(a in (1, b) for a, b in zip(o.shape, var.shape, strict=True))

        kind = (dtype or var.dtype,)
        return self.find(kind, where=lambda o: fits(o) and o != var) or self.find(kind, where=fits)

    # Writing

    def emit(self, statement: Statement | Loop | Branch) -> None:
        self.blocks[-1].append(statement)

    def let(self, text: str, dtype: str, shape: Shape, value: Callable[[Env], np.ndarray], *, shy: bool = False) -> Var:
        """Bind a new name to an expression; `shy`: seldom seen by later operations."""
        var = Var(self.fresh(), dtype, shape)
        self.used.update(re.findall(r"v\d+", text))

        def act(env: Env) -> None:
            result = np.asarray(value(env))
            assert result.dtype == fn.NUMPY[dtype], (text, result.dtype, dtype)
            env[var.name] = np.broadcast_to(result, shape) if result.shape != shape else result

        self.emit(Statement(f"{var.name} = {text}", act))
        if not shy or self.chance(0.08):
            self.scopes[-1].append(var)
        return var

    def assign(self, var: Var, value: Var) -> None:
        """Give an existing name another value of its type."""
        self.emit(Statement(f"{var.name} = {value.name}", lambda env: env.__setitem__(var.name, env.of(value))))

    def buffer(self, dtype: str, size: int = BUFFER, *, output: bool = False) -> str:
        """A pointer argument to new memory, or now and then to memory that another argument points to."""
        name = f"{'y' if output else 'x'}{len(self.arguments)}"
        self.arguments[name] = f"*{dtype}"
        same = [at for at, array in self.memory.items() if array.dtype == fn.NUMPY[dtype] and array.size == size]
        if same and not output and self.alone and self.chance(0.3):
            self.storage[name] = self.pick(same)
            return name
        self.storage[name] = name
        self.memory[name] = fn.random_values(self.rng, dtype, size, self.tame)
        return name

    # Indices

    def ramp(self, shape: Shape, order: tuple[int, ...] | None = None) -> Var:
        """Row-major positions in a tile of `shape` (column-major and so on with another `order`)."""
        order = order or tuple(range(len(shape)))
        terms: list[str] = []
        values = np.zeros(shape, np.int32)
        stride = 1
        for axis in reversed(order):
            index = ", ".join(":" if a == axis else "None" for a in range(len(shape)))
            part = f"tl.arange(0, {shape[axis]})" + (f"[{index}]" if len(shape) > 1 else "")
            terms.append(part if stride == 1 else f"{part} * {stride}")
            values = values + np.expand_dims(
                np.arange(shape[axis], dtype=np.int32) * stride, [a for a in range(len(shape)) if a != axis]
            ).astype(np.int32)
            stride *= shape[axis]
        return self.let(" + ".join(reversed(terms)), "i32", shape, lambda env: values, shy=True)

    def offset(self, ramp: Var, size: int) -> Var:
        """`ramp` moved to this program's part of a buffer."""
        wide = self.chance(0.5)
        start = f"{self.pid.name}.to(tl.int64)" if wide else self.pid.name
        kind = "i64" if wide else "i32"
        return self.let(
            f"{start} * {size} + {ramp.name}",
            kind,
            ramp.shape,
            lambda env: (env.of(self.pid) * size + env.of(ramp)).astype(fn.NUMPY[kind]),
            shy=True,
        )

    # Control flow

    def step(self) -> None:
        """One random operation."""
        names = list(OPERATIONS)
        weights = np.array([OPERATIONS[n][0] for n in names], float)
        for _ in range(20):
            name = names[int(self.rng.choice(len(names), p=weights / weights.sum()))]
            if OPERATIONS[name][1](self):
                return

    def steps(self, count: int) -> None:
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.09 and self.depth < 2:
                self.loop()
            elif kind < 0.16 and self.depth < 3:
                self.branch()
            elif kind < 0.20 and self.depth < 2:
                self.store(self.find(where=lambda v: v.shape != ()), in_place=True)
            else:
                self.step()

    def _inner(self, target: list[Statement | Loop | Branch], carried: list[Var], count: int, extra: list[Var]) -> None:
        self.blocks.append(target)
        self.scopes.append(list(extra))
        self.depth += 1
        self.steps(count)
        for var in carried:
            value = self.find((var.dtype,), var.shape, where=lambda v, var=var: v != var)
            if value is not None:
                self.assign(var, value)
        self.depth -= 1
        self.scopes.pop()
        self.blocks.pop()

    def carried(self) -> list[Var]:
        """New names that a loop or branch may assign: copies of visible ones."""
        found: list[Var] = []
        roots: set[Var] = set()
        for _ in range(int(self.rng.integers(1, 4))):
            var = self.find(where=lambda v: self.roots.get(v, v) not in roots)
            if var is not None:
                copy = self.let(var.name, var.dtype, var.shape, lambda env, var=var: env.of(var))
                self.roots[copy] = self.roots.get(var, var)
                roots.add(self.roots[copy])
                found.append(copy)
        return found

    def loop(self) -> bool:
        carried = self.carried()
        counter = f"k{self.count}"
        self.count += 1
        trips = int(self.rng.integers(0, 4))
        form = self.pick(["constant", "argument", "static", "while", "step"])
        kind, dtype = ("i64", np.int64) if form == "argument" else ("i32", np.int32)
        stop = trips
        if form == "constant":
            head, values = f"for {counter} in range({trips}):", lambda env: range(stop)
        elif form == "argument":
            head, values = f"for {counter} in range(m):", lambda env: range(int(env["m"]))
        elif form == "static":
            head, values = f"for {counter} in tl.static_range({trips}):", lambda env: range(stop)
        elif form == "step":
            head, values = f"for {counter} in range(1, {3 * trips + 1}, 3):", lambda env: range(1, 3 * stop + 1, 3)
        else:
            self._while(counter, trips, carried)
            return True
        inner = Loop(head, counter, dtype, values, carried)
        extra = [] if form == "static" else [Var(counter, kind, ())]
        self.emit(inner)
        self._inner(inner.body, carried, int(self.rng.integers(1, 5)), extra)
        return True

    def _while(self, counter: str, trips: int, carried: list[Var]) -> None:
        self.emit(Statement(f"{counter} = tl.full((), 0, tl.int32)", lambda env: None))
        inner = Loop(f"while {counter} < {trips}:", counter, np.int32, lambda env: range(trips), carried)
        self.emit(inner)
        self._inner(inner.body, carried, int(self.rng.integers(1, 4)), [Var(counter, "i32", ())])
        inner.body.append(Statement(f"{counter} += 1", lambda env: None))

    def branch(self) -> bool:
        condition = self.find(("i1",), ())
        if condition is None:
            scalar = self.find((*fn.INTS, *fn.FLOATS), ())
            if scalar is None:
                scalar = self.pid
            condition = self.let(f"{scalar.name} > 0", "i1", (), lambda env: env.of(scalar) > 0)
        carried = self.carried()
        inner = Branch(condition)
        self.emit(inner)
        self._inner(inner.then, carried, int(self.rng.integers(1, 4)), [])
        if not inner.then:
            inner.then.append(Statement("pass", lambda env: None))
        if self.chance(0.6):
            self._inner(inner.otherwise, carried, int(self.rng.integers(1, 4)), [])
        return True

    # Stores

    def store(self, var: Var | None, *, in_place: bool = False) -> bool:
        """Write a tile; `in_place`: into memory that is also read, where programs do not meet."""
        if var is None:
            return False
        size = numel(var.shape)
        name = None
        if in_place and self.in_place and self.alone and size <= BUFFER:
            wanted = fn.NUMPY[var.dtype]
            name = next((n for n in self.arguments if n[0] == "x" and self.arguments[n] == f"*{var.dtype}"), None)
            assert name is None or self.memory[self.storage[name]].dtype == wanted
        if name is None:
            name = self.buffer(var.dtype, size * self.programs, output=True)
        shape = var.shape
        if shape == ():
            at = self.pid
            text = f"tl.store({name} + {at.name}, {var.name})"
            self.emit(Statement(text, lambda env: env.memory[name].__setitem__(env.of(at), env.of(var))))
            return True
        axes = tuple(self.rng.permutation(len(shape))) if self.chance(0.3) else None
        ramp = self.ramp(shape, axes)
        if size & (size - 1) == 0 and self.chance(0.15):
            odd = int(self.rng.integers(0, 8)) * 2 + 1
            straight = ramp
            ramp = self.let(
                f"({straight.name} * {odd}) & {size - 1}",
                "i32",
                shape,
                lambda env: env.of(straight) * odd & size - 1,
                shy=True,
            )
        at = self.offset(ramp, size)
        mask = self.partner(Var("", "i1", shape)) if self.chance(0.4) else None
        condition = f", mask={mask.name}" if mask is not None else ""

        def act(env: Env) -> None:
            chosen = np.broadcast_to(env.of(mask), shape) if mask is not None else np.ones(shape, bool)
            env.memory[name][env.of(at)[chosen]] = env.of(var)[chosen]

        self.emit(Statement(f"tl.store({name} + {at.name}, {var.name}{condition})", act))
        return True

    # The whole

    def case(self) -> Case:
        axis = int(self.pid.name[1])
        self.emit(Statement(f"{self.pid.name} = tl.program_id({axis})", lambda env: None))
        self.scopes[0].append(self.pid)
        for _ in range(int(self.rng.integers(2, 5))):
            OPERATIONS["load"][1](self)
        self.steps(int(self.rng.integers(5, 16)))
        leaves = [v for v in self.scopes[0] if v.name not in self.used and v != self.pid]
        for var in leaves[-8:]:  # nothing is computed in vain
            if numel(var.shape) <= 1024:
                self.store(var)
        most = numel(self.tile) * self.programs if self.chance(0.7) else BUFFER
        scalars: dict[str, int | float] = {
            "n": int(self.rng.integers(0, most)),
            "m": int(self.rng.integers(0, 4)),
            "s": float(np.float32(self.rng.standard_normal())),
        }
        self.arguments |= {"n": "i64", "m": "i64", "s": "fp32"}
        return Case(
            self.seed, f"fuzz_{self.seed}", self.grid, self.arguments, self.storage, self.memory, scalars,
            self.blocks[0], HEADER,
        )  # fmt: skip
