"""TTIR text -> `ir`. The text is nearly equal in all versions of Triton; its Python binding hides most attributes."""

from __future__ import annotations

import re
import struct

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.cpu.ir import Block, Constant, Function, Op, Type, Value, known_elem

_NAME = re.compile(r"%[A-Za-z0-9_$.\-]+(?:#\d+)?")
_LOC_LINE = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE = re.compile(r'"([^"]+)":(\d+):\d+')
_REF = re.compile(r"#loc\d*")
_OP = re.compile(r'^(?:(%[^=]*?) = )?"?([a-z_]+\.[A-Za-z_.]+)"?(.*)$')
_ATTR = re.compile(r"(\w[\w.]*)\s*=\s*(array<[^>]*>|\"[^\"]*\"|[^,{}<>]+)")
_FLOAT_FORMATS = {"f16": ("<e", 2), "f32": ("<f", 4), "f64": ("<d", 8)}


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for i, c in enumerate(text):
        if c in "<([{":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


def _find_colon(text: str) -> int:
    """Position of the last `` : `` outside brackets, or -1."""
    depth, found = 0, -1
    for i, c in enumerate(text):
        if c in "<([{":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        elif c == ":" and depth == 0 and text[i - 1 : i + 2] == " : ":
            found = i
    return found


def parse_type(text: str) -> Type:
    """``tensor<8x!tt.ptr<f32>>``, ``!tt.ptr<bf16>``, ``i32``."""
    text = text.strip()
    shape: tuple[int, ...] = ()
    if text.startswith("tensor<"):
        text = text[7:-1]
        dims = re.match(r"(?:\d+x)*", text)
        assert dims is not None
        shape = tuple(int(d) for d in dims.group().split("x") if d)
        text = text[dims.end() :]
    if text.startswith("!tt.ptr<"):
        pointee = text[8:-1].split(",")[0].strip()
        if not known_elem(pointee):
            raise CompileError("compile for cpu", f"pointers to {pointee} are not supported")
        return Type("ptr", shape, pointee)
    text = "i64" if text == "index" else text
    if not known_elem(text):
        raise CompileError("compile for cpu", f"type {text} is not supported")
    return Type(text, shape)


def _number(text: str, type: Type) -> int | float:
    if text in ("true", "false"):
        return int(text == "true")
    if type.is_int:
        return int(text, 0)
    if not text.startswith("0x"):
        value = float(text)  # the shortest text that means the constant, so it may need rounding to the type
        return struct.unpack("<f", struct.pack("<f", value))[0] if type.elem == "f32" else value
    bits = int(text, 16)
    if type.elem == "bf16":
        return float(struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0])
    fmt, size = _FLOAT_FORMATS[type.elem]
    return float(struct.unpack(fmt, bits.to_bytes(size, "little"))[0])


def _constant(text: str, type: Type) -> Constant:
    text = text.strip()
    if text.startswith("dense<"):
        text = text[6:-1]
        if text.startswith("["):
            flat = text.replace("[", "").replace("]", "")
            return [_number(t.strip(), type) for t in flat.split(",")]  # type: ignore[return-value]
        if text.startswith('"'):
            raise CompileError("compile for cpu", "dense constants in hexadecimal form are not supported")
    return _number(text, type)


class _Locations:
    """The ``#loc`` table at the end of the text."""

    def __init__(self, text: str) -> None:
        self.table: dict[str, str] = {}
        if "loc(" in text:
            for line in text.splitlines():
                if line.startswith("#loc") and (match := _LOC_LINE.match(line)):
                    self.table[match[1]] = match[2]

    def resolve(self, text: str) -> str:
        for _ in range(32):
            if found := _FILE.search(text):
                return f"{found[1]}:{found[2]}"
            ref = _REF.search(text)
            if ref is None:
                return ""
            text = self.table.get(ref.group(), "")
        return ""

    def strip(self, line: str) -> tuple[str, str]:
        """`line` without its ``loc(...)`` parts, and the last of them."""
        last = ""
        while (start := line.find(" loc(")) >= 0:
            depth, end = 0, start + 4
            while end < len(line):
                depth += {"(": 1, ")": -1}.get(line[end], 0)
                end += 1
                if depth == 0:
                    break
            last = line[start + 5 : end - 1]
            line = line[:start] + line[end:]
        return line, last


class _Parser:
    def __init__(self, text: str) -> None:
        self.locations = _Locations(text)
        self.lines = text.splitlines()
        self.at = 0
        self.scopes: list[dict[str, Value]] = [{}]
        self.loc = ""

    def next_line(self) -> str:
        while True:
            if self.at >= len(self.lines):
                raise CompileError("compile for cpu", "the TTIR text ends too early")
            raw = self.lines[self.at].strip()
            self.at += 1
            if raw and not raw.startswith("#"):
                line, loc = self.locations.strip(raw)
                self.loc = loc
                return line.strip()

    def use(self, name: str) -> Value:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise CompileError("compile for cpu", f"the TTIR text uses {name} before it is defined")

    def define(self, names: list[str], values: list[Value]) -> None:
        flat: list[str] = []
        for name in names:
            base, _, count = name.partition(":")
            if count:
                flat += [f"{base}#{i}" for i in range(int(count))]
                self.scopes[-1][base] = values[0]
            else:
                flat.append(base)
        self.scopes[-1].update(zip(flat, values, strict=False))

    def arguments(self, text: str) -> list[Value]:
        values: list[Value] = []
        for part in _split(text):
            name, _, rest = part.partition(":")
            value = Value(parse_type(rest.split("{")[0]))
            self.scopes[-1][name.strip()] = value
            values.append(value)
        return values

    def function(self) -> Function:
        functions: list[Function] = []
        while self.at < len(self.lines):
            raw = self.lines[self.at].strip()
            if "tt.func" not in raw:
                self.at += 1
                continue
            line = self.next_line()
            match = re.match(r"tt\.func (?:\w+ )?@\"?([^\"(]+)\"?\(", line)
            assert match is not None
            self.scopes.append({})
            args = self.arguments(line[match.end() : _closing(line, match.end() - 1)])
            body = Block(args, [])
            self.block(body)
            self.scopes.pop()
            functions.append(Function(match[1], body))
        if len(functions) != 1:
            raise CompileError("compile for cpu", "tt.call: functions that are not inlined are not supported")
        return functions[0]

    def block(self, block: Block) -> str:
        """Fill `block` up to its closing line, which is returned."""
        for value in block.args:
            value.block = block
        while True:
            line = self.next_line()
            if line.startswith("}"):
                return line
            if line.startswith("^"):
                block.args += self.arguments(line[line.index("(") + 1 : line.rindex(")")])
                for value in block.args:
                    value.block = block
                continue
            op = self.op(line)
            op.parent = block
            block.ops.append(op)

    def region(self, op: Op, args: list[Value] | None = None) -> str:
        self.scopes.append({})
        block = Block([], [], op)
        op.regions.append(block)
        if args:
            block.args += args
        end = self.block(block)
        if op.name in ("scf.for", "scf.if") and not (block.ops and block.ops[-1].name == "scf.yield"):
            block.ops.append(Op("scf.yield", [], [], loc=op.loc))  # not written out where nothing is yielded
            block.ops[-1].parent = block
        self.scopes.pop()
        if not block.ops or block.ops[-1].name not in _TERMINATORS:  # without operands it is not printed
            block.ops.append(Op("scf.yield", [], [], parent=block))
        return end

    def op(self, line: str) -> Op:
        match = _OP.match(line)
        if match is None:
            raise CompileError("compile for cpu", f"cannot read the TTIR line {line!r}")
        names = [n.strip() for n in match[1].split(",")] if match[1] else []
        name, rest = match[2], match[3].strip()
        op = Op(name, [], [], loc=self.locations.resolve(self.loc))
        if name == "scf.for":
            self.scf_for(op, rest)
        elif name == "scf.if":
            self.scf_if(op, rest)
        elif name == "scf.while":
            self.scf_while(op, rest)
        else:
            if rest.endswith("({"):
                head = rest[:-2]
                while True:
                    end = self.region(op)
                    if not end.startswith("}, {"):
                        break
                rest = head + " " + end[end.index(")") + 1 :].strip()
            self.plain(op, rest)
        for i, value in enumerate(op.results):
            value.op, value.number = op, i
        self.define(names, op.results)
        return op

    def plain(self, op: Op, rest: str) -> None:
        colon = _find_colon(rest)
        head, types = (rest, "") if colon < 0 else (rest[:colon], rest[colon + 2 :].strip())
        if colon < 0 and rest.startswith(": "):
            head, types = "", rest[2:]
        op.operands = [self.use(n) for n in _NAME.findall(re.sub(r'"[^"]*"', "", head))]
        op.attrs = {k: v.strip() for k, v in _ATTR.findall(head)}
        words = re.match(r"[a-z_, ]+", head)
        op.attrs["head"] = words.group().strip(" ,") if words else ""
        op.results = [Value(t) for t in _result_types(op, types)]
        if op.name == "arith.constant":
            value = re.sub(r"^\{[^}]*\}\s*", "", head)
            op.constant = _constant(value, op.result.type)

    def scf_for(self, op: Op, rest: str) -> None:
        op.attrs["unsigned"] = "1" if rest.startswith("unsigned") else ""
        match = re.match(r"(?:unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)", rest)
        assert match is not None
        op.operands = [self.use(match[i]) for i in (2, 3, 4)]
        inits: list[tuple[str, str]] = []
        if (found := rest.find("iter_args(")) >= 0:
            for part in _split(rest[found + 10 : _closing(rest, found + 9)]):
                arg, _, init = part.partition(" = ")
                inits.append((arg, init))
        op.operands += [self.use(init) for _, init in inits]
        induction = Value(op.operands[0].type)
        carried = [Value(v.type) for v in op.operands[3:]]
        self.scopes.append({match[1]: induction, **{a: v for (a, _), v in zip(inits, carried, strict=True)}})
        self.region(op, [induction, *carried])
        self.scopes.pop()
        op.results = [Value(v.type) for v in carried]

    def scf_if(self, op: Op, rest: str) -> None:
        names = _NAME.findall(rest)
        op.operands = [self.use(names[0])]
        if "->" in rest:
            op.results = [Value(t) for t in _types(rest[rest.index("->") + 2 : rest.rindex("{")])]
        end = self.region(op)
        if "else" in end:
            self.region(op)

    def scf_while(self, op: Op, rest: str) -> None:
        before: list[Value] = []
        scope: dict[str, Value] = {}
        if rest.startswith("("):
            for part in _split(rest[1 : _closing(rest, 0)]):
                arg, _, init = part.partition(" = ")
                op.operands.append(self.use(init))
                before.append(Value(op.operands[-1].type))
                scope[arg] = before[-1]
        arrow = rest.rindex("->")
        op.results = [Value(t) for t in _types(rest[arrow + 2 : rest.rindex("{")])]
        self.scopes.append(scope)
        self.region(op, before)
        self.scopes.pop()
        self.region(op)


def _closing(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise CompileError("compile for cpu", f"unbalanced TTIR line {text!r}")


def _types(text: str) -> list[Type]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [parse_type(t) for t in _split(text)]


def _result_types(op: Op, text: str) -> list[Type]:
    if "->" in text:
        results = _types(text[text.rindex("->") + 2 :])
        return results * 2 if op.name == "tt.split" and len(results) == 1 else results
    if op.name in ("arith.cmpi", "arith.cmpf"):
        return [parse_type(text).with_elem("i1")]
    if op.name == "tt.load":
        pointer = parse_type(_split(text)[0])
        return [Type(pointer.pointee, pointer.shape)]
    if op.name == "arith.constant" and not text:
        return [Type("i1")]  # true, false
    if not text or op.name in _NO_RESULT:
        return []
    types = _split(text.split(" to ")[-1])
    return [parse_type(types[-1] if op.name == "arith.select" else types[0])]


_TERMINATORS = {"tt.return", "tt.reduce.return", "tt.scan.return", "scf.yield", "scf.condition"}
_NO_RESULT = {*_TERMINATORS, "tt.store", "tt.print", "tt.assert"}


def parse(text: str) -> Function:
    """The kernel in a TTIR module; operations are numbered in program order."""
    function = _Parser(text).function()
    for position, op in enumerate(function.body.walk()):
        op.position = position
    return function
