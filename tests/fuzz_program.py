"""Little programs that exist twice: as the text of a Triton kernel, and as NumPy functions that give its result."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Var:
    """A name in the kernel: its dtype (as in a signature) and shape."""

    name: str
    dtype: str
    shape: Shape


class Env(dict[str, np.ndarray]):
    """Values of names while one program runs, and the memory that all programs share."""

    def __init__(self, memory: dict[str, np.ndarray], **values: np.ndarray) -> None:
        super().__init__(values)
        self.memory = memory
        self.doubtful: list[object] = []

    def of(self, var: Var) -> np.ndarray:
        return self[var.name]


@dataclass
class Statement:
    """One or more lines at one level, and what they do."""

    text: str
    act: Callable[[Env], None]

    def lines(self, indent: str) -> list[str]:
        return [indent + line for line in self.text.splitlines()]

    def run(self, env: Env) -> None:
        self.act(env)


@dataclass
class Loop:
    """``for name in range(...)``, or ``while`` on a counter; the body may assign names from outside."""

    head: str
    name: str
    dtype: type
    values: Callable[[Env], range]
    carried: list[Var] = field(default_factory=list)
    body: list["Statement | Loop | Branch"] = field(default_factory=list)

    def lines(self, indent: str) -> list[str]:
        return [indent + self.head, *block(self.body, indent)]

    def run(self, env: Env) -> None:
        self.doubt(env)
        for value in self.values(env):
            env[self.name] = np.asarray(value, self.dtype)
            for statement in self.body:
                statement.run(env)

    def doubt(self, env: Env) -> None:
        """Triton 3.6 miscompiles loops in which two carried variables begin with the same value and one is assigned
        to the other: it drops the assignment. A difference in such a kernel proves nothing."""
        kinds = [(v.dtype, v.shape, env.of(v).tobytes()) for v in self.carried]
        if len(set(kinds)) < len(kinds):
            env.doubtful.append(self)


@dataclass
class Branch:
    """``if name: ... else: ...``."""

    condition: Var
    then: list["Statement | Loop | Branch"] = field(default_factory=list)
    otherwise: list["Statement | Loop | Branch"] = field(default_factory=list)

    def lines(self, indent: str) -> list[str]:
        text = [f"{indent}if {self.condition.name}:", *block(self.then, indent)]
        if self.otherwise:
            text += [f"{indent}else:", *block(self.otherwise, indent)]
        return text

    def run(self, env: Env) -> None:
        for statement in self.then if env.of(self.condition) else self.otherwise:
            statement.run(env)


def block(statements: list[Statement | Loop | Branch], indent: str) -> list[str]:
    return [line for statement in statements for line in statement.lines(indent + "    ")]


@dataclass
class Case:
    """A kernel, its launch, and its expected effect on memory.

    Attributes
    ----------
    arguments
        Parameters in order: name -> type. A pointer's buffer is `memory`[`storage`[name]].
    scalars
        Values of the parameters that are no pointers.
    """

    seed: int
    name: str
    grid: tuple[int, int, int]
    arguments: dict[str, str]
    storage: dict[str, str]
    memory: dict[str, np.ndarray]
    scalars: dict[str, int | float]
    body: list[Statement | Loop | Branch]
    header: str
    doubtful: bool = False

    @property
    def source(self) -> str:
        head = f"@kernel\ndef {self.name}({', '.join(self.arguments)}):"
        return "\n".join([self.header, head, *block(self.body, "")]) + "\n"

    def expected(self) -> dict[str, np.ndarray]:
        """Memory after all programs, run one after the other; sets `doubtful`."""
        memory = {name: array.copy() for name, array in self.memory.items()}
        seen = {name: memory[at] for name, at in self.storage.items()}
        x, y, z = self.grid
        for k in range(z):
            for j in range(y):
                for i in range(x):
                    env = Env(seen, **{n: np.asarray(i_, np.int32) for n, i_ in (("p0", i), ("p1", j), ("p2", k))})
                    for name, value in self.scalars.items():
                        kind = np.float32 if self.arguments[name] == "fp32" else np.int64
                        env[name] = np.asarray(value, kind)
                    with np.errstate(all="ignore"):
                        for statement in self.body:
                            statement.run(env)
                    self.doubtful |= bool(env.doubtful)
        return memory
