"""Turns one version of a declared message into a straight-line encoder and decoder.

The source is generated, `exec`ed and registered with linecache, so tracebacks and profilers show it; it also hangs on
the function as `__source__`. Structs are inlined where they are used: the only loops are those over arrays, and no
field is looked up by name at run time.

What makes it fast: neighbouring fixed-size fields go through one precompiled `struct.Struct`, together with the
length that follows them (for compact lengths: its first byte, with a branch for the rare longer ones) or the empty
tag section at the end of a struct; arrays of numbers up to 15 elements use a table of precompiled formats.

What makes it safe: positions only grow; a fixed field beyond the end raises in `unpack_from`, everything with a length
is held against the end of the frame; arrays are held against the bytes left, counted with the smallest possible
element, before anything is allocated, and their elements are counted over the whole message. Whatever goes wrong in a
decoder leaves it as `Malformed`.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.regions import FileRegion
from klamm.protocol.wire import (
    MAX_STRING_BYTES,
    Malformed,
    NotEncodable,
    Wire,
    put_uvarint,
    read_uvarint,
)

if TYPE_CHECKING:
    from klamm.protocol.schema import Message

SMALL_ARRAY = 16

# An object takes some fifty times the memory of the smallest element on the wire, so the bytes of a frame alone do not
# bound what it decodes to: count elements over all arrays of a message (those of short arrays of numbers do not count).
MAX_REQUEST_ELEMENTS = 1 << 20
MAX_RESPONSE_ELEMENTS = 1 << 24


def compile_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """`decode(buf, pos=0) -> (message, next position)`."""
    return _DecoderSource(cls, version).compile()


def compile_encoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """`encode(message, out, regions=None) -> out`."""
    return _EncoderSource(cls, version).compile()


class _Source:
    """Lines of source, the names they use, and the run of fixed-size values not written out yet."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.flexible[0] <= version <= cls.flexible[1]
        self.lines: list[str] = []
        self.depth = 0
        self.env: dict[str, Any] = {
            "Malformed": Malformed,
            "NotEncodable": NotEncodable,
            "FileRegion": FileRegion,
            "StructError": struct.error,
            "read_uvarint": read_uvarint,
            "put_uvarint": put_uvarint,
            "put_length": _put_length,
            "put_string_length": _put_string_length,
            "refuse": _refuse,
            "too_many": _too_many,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
            "new": object.__new__,
        }
        self.names: dict[tuple[str, Any], str] = {}
        self.counter = 0
        self.run: list[tuple[str, str]] = []  # (struct format, expression or target)

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def variable(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}_{self.counter}"

    def constant(self, hint: str, key: Any, make: Callable[[], Any]) -> str:
        name = self.names.get((hint, key))
        if name is None:
            name = self.names[hint, key] = self.variable(hint)
            self.env[name] = make()
        return name

    def compact(self, spec: FieldSpec) -> bool:
        return self.flexible and spec.flexible[0] <= self.version <= spec.flexible[1]

    def length_format(self, spec: FieldSpec) -> str:
        if self.compact(spec):
            return "B"
        return "h" if not spec.array and spec.wire is not None and spec.wire.kind == "string" else "i"

    def is_fixed(self, spec: FieldSpec) -> bool:
        return spec.wire is not None and spec.wire.kind == "fixed" and not spec.array

    def tagged(self, cls: type) -> list[FieldSpec]:
        found = [spec for spec in specs(cls) if spec.in_version(self.version) and spec.tagged_in(self.version)]
        return sorted(found, key=lambda spec: spec.tag or 0)

    def define(self, name: str, role: str) -> Callable[..., Any]:
        source = "\n".join(self.lines) + "\n"
        filename = f"<{role} {self.cls.__name__} v{self.version}>"
        linecache.cache[filename] = (
            len(source),
            None,
            source.splitlines(True),
            filename,
        )
        exec(compile(source, filename, "exec"), self.env)
        function: Any = self.env[name]
        function.__source__ = source
        function.__qualname__ = f"{self.cls.__name__}.{role}[{self.version}]"
        return function  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------- decoding


class _DecoderSource(_Source):
    def compile(self) -> Callable[..., Any]:
        self.emit("def decode(buf, pos=0):")
        self.depth += 1
        self.emit("try:")
        self.depth += 1
        self.emit("end = len(buf)")
        limit = MAX_REQUEST_ELEMENTS if self.cls.kind == "request" else MAX_RESPONSE_ELEMENTS
        self.emit(f"budget = {limit}")
        self.read_struct("message", self.cls)
        self.emit("if pos > end: raise Malformed('truncated')")
        self.emit("return message, pos")
        self.depth -= 1
        self.emit("except (StructError, IndexError) as error:")
        self.emit(f"    raise Malformed(f'{self.cls.__name__} v{self.version}: truncated: {{error}}') from error")
        self.emit("except Malformed as error:")
        self.emit(f"    raise Malformed(f'{self.cls.__name__} v{self.version}: {{error}}') from None")
        return self.define("decode", "decode")

    def flush(self) -> None:
        """Read the pending run of fixed-size values."""
        if not self.run:
            return
        formats = "".join(part for part, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        self.run.clear()
        if formats == "B":
            self.emit(f"{targets} = buf[pos]")
            self.emit("pos += 1")
            return
        layout = struct.Struct(">" + formats)
        read = self.constant("read", formats, lambda: layout.unpack_from)
        self.emit(f"{targets}, = {read}(buf, pos)")
        self.emit(f"pos += {layout.size}")

    def read_struct(self, target: str, cls: type) -> None:
        self.emit(f"{target} = new({self.constant(cls.__name__, cls, lambda: cls)})")
        for spec in specs(cls):
            attribute = f"{target}.{spec.name}"
            if not spec.in_version(self.version) or spec.tagged_in(self.version):
                self.emit(f"{attribute} = {self.default(spec)}")
            elif self.is_fixed(spec):
                assert spec.wire is not None
                self.run.append((spec.wire.format, attribute))
            else:
                self.read_value(attribute, spec)
        if not self.flexible:
            self.flush()
            return
        self.read_tags(target, cls)

    def default(self, spec: FieldSpec) -> str:
        if spec.has_fresh_default:
            if spec.array:
                return "[]"
            return f"{self.constant(spec.struct_name, spec.struct, lambda: spec.struct)}()"
        if isinstance(spec.default, (int, float, str, type(None))):
            return repr(spec.default)
        return self.constant("default", spec.default, lambda: spec.default)

    def read_tags(self, target: str, cls: type) -> None:
        tags = self.variable("tags")
        self.run.append(("B", tags))
        self.flush()
        self.emit(f"if {tags}:")
        self.depth += 1
        self.emit(f"if {tags} > 127: {tags}, pos = read_uvarint(buf, pos - 1)")
        self.emit(f"if {tags} * 2 > end - pos: raise Malformed('more tagged fields than bytes')")
        self.emit(f"for _ in range({tags}):")
        self.depth += 1
        tag, size, after = (
            self.variable("tag"),
            self.variable("size"),
            self.variable("after"),
        )
        self.emit(f"{tag}, pos = read_uvarint(buf, pos)")
        self.emit(f"{size}, pos = read_uvarint(buf, pos)")
        self.emit(f"{after} = pos + {size}")
        self.emit(f"if {after} > end: raise Malformed('tagged field longer than the frame')")
        branch = "if"
        for spec in self.tagged(cls):
            self.emit(f"{branch} {tag} == {spec.tag}:")
            branch = "elif"
            self.depth += 1
            self.read_one(f"{target}.{spec.name}", spec)
            self.emit(f"if pos != {after}: raise Malformed('tagged field {spec.name} has a wrong size')")
            self.depth -= 1
        self.emit(f"pos = {after}")
        self.depth -= 2

    def read_one(self, target: str, spec: FieldSpec) -> None:
        """Read a value that stands alone."""
        if self.is_fixed(spec):
            assert spec.wire is not None
            self.run.append((spec.wire.format, target))
        else:
            self.read_value(target, spec)
        self.flush()

    def read_value(self, target: str, spec: FieldSpec) -> None:
        if spec.array:
            self.read_array(target, spec)
        elif spec.wire is None:
            self.read_nested(target, spec)
        else:
            self.read_bytes(target, spec, spec.nullable_in(self.version))

    def read_nested(self, target: str, spec: FieldSpec) -> None:
        value = self.variable(spec.name)
        if not spec.nullable_in(self.version):
            self.read_struct(value, spec.struct)
            self.flush()
            self.emit(f"{target} = {value}")
            return
        present = self.variable("present")
        self.run.append(("b", present))
        self.flush()
        self.emit(f"if {present} < 0:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        self.depth += 1
        self.read_struct(value, spec.struct)
        self.flush()
        self.emit(f"{target} = {value}")
        self.depth -= 1

    def read_length(self, spec: FieldSpec) -> tuple[str, str]:
        """Emit reading of a length: its variable and the condition that says null. Compact ones are one too big."""
        length = self.variable("n")
        self.run.append((self.length_format(spec), length))
        self.flush()
        if self.compact(spec):
            self.emit(f"if {length} > 127: {length}, pos = read_uvarint(buf, pos - 1)")
            return length, f"{length} == 0"
        return length, f"{length} < 0"

    def null_branch(self, target: str, spec: FieldSpec, is_null: str, nullable: bool) -> None:
        """`if null: ...`, and opens the `else:` when there is more than raising to do."""
        if nullable:
            self.emit(f"if {is_null}:")
            self.emit(f"    {target} = None")
            self.emit("else:")
            self.depth += 1
        else:
            self.emit(f"if {is_null}: raise Malformed('{spec.name} must not be null')")

    def read_bytes(self, target: str, spec: FieldSpec, nullable: bool) -> None:
        assert spec.wire is not None
        length, is_null = self.read_length(spec)
        self.null_branch(target, spec, is_null, nullable)
        after = self.variable("after")
        if self.compact(spec):
            if spec.wire.kind == "string":
                self.emit(f"if {length} > {MAX_STRING_BYTES + 1}: raise Malformed('{spec.name} is too long')")
            self.emit(f"{after} = pos + {length} - 1")
        else:
            self.emit(f"{after} = pos + {length}")
        piece = f"buf[pos:{after}]"
        reading = {
            "string": f"str({piece}, 'utf-8', 'replace')",
            "bytes": f"bytes({piece})",
            "records": piece,
        }
        self.emit(f"if {after} > end: raise Malformed('{spec.name} is longer than the frame')")
        self.emit(f"{target} = {reading[spec.wire.kind]}")
        self.emit(f"pos = {after}")
        if nullable:
            self.depth -= 1

    def read_array(self, target: str, spec: FieldSpec) -> None:
        length, is_null = self.read_length(spec)
        nullable = spec.nullable_in(self.version)
        self.null_branch(target, spec, is_null, nullable)
        if self.compact(spec):
            self.emit(f"{length} -= 1")
        if spec.wire is not None and spec.wire.kind == "fixed":
            self.read_fixed_array(target, spec, length)
        else:
            smallest = self.smallest_element(spec)
            self.emit(f"if {length} * {smallest} > end - pos: too_many('{spec.name}', {length}, end - pos)")
            self.spend(spec, length)
            items, item = self.variable(spec.name), self.variable("item")
            self.emit(f"{items} = []")
            self.emit(f"for _ in range({length}):")
            self.depth += 1
            if spec.wire is None:
                self.read_struct(item, spec.struct)
            else:
                self.read_bytes(item, _element(spec), nullable=False)
            self.flush()
            self.emit(f"{items}.append({item})")
            self.depth -= 1
            self.emit(f"{target} = {items}")
        if nullable:
            self.depth -= 1

    def read_fixed_array(self, target: str, spec: FieldSpec, length: str) -> None:
        assert spec.wire is not None
        form, size = spec.wire.format, spec.wire.size
        readers = self.constant(
            "readers",
            form,
            lambda: tuple(struct.Struct(">" + form * n).unpack_from for n in range(SMALL_ARRAY)),
        )
        self.emit(f"if {length} < {SMALL_ARRAY}:")
        self.emit(f"    {target} = list({readers}[{length}](buf, pos))")
        self.emit(f"elif {length} * {size} > end - pos:")
        self.emit(f"    too_many('{spec.name}', {length}, end - pos)")
        self.emit("else:")
        self.depth += 1
        self.spend(spec, length)
        self.depth -= 1
        if form == "16s":
            self.emit(f"    {target} = [bytes(buf[i : i + 16]) for i in range(pos, pos + {length} * 16, 16)]")
        else:
            self.emit(f"    {target} = list(unpack_from(f'>{{{length}}}{form}', buf, pos))")
        self.emit(f"pos += {length} * {size}")

    def spend(self, spec: FieldSpec, length: str) -> None:
        self.emit(f"budget -= {length}")
        self.emit(f"if budget < 0: raise Malformed('{spec.name}: too many elements in one message')")

    def smallest_element(self, spec: FieldSpec) -> int:
        if spec.wire is not None:
            return struct.calcsize(">" + self.length_format(_element(spec)))
        return max(1, self.smallest_struct(spec.struct))

    def smallest_struct(self, cls: type) -> int:
        """The fewest bytes a struct takes in this version: what an array of it is held against before it is read."""
        total = 1 if self.flexible else 0
        for spec in specs(cls):
            if not spec.in_version(self.version) or spec.tagged_in(self.version):
                continue
            if spec.wire is None and not spec.array:
                total += 1 if spec.nullable_in(self.version) else self.smallest_struct(spec.struct)
            elif self.is_fixed(spec):
                assert spec.wire is not None
                total += spec.wire.size
            else:
                total += struct.calcsize(">" + self.length_format(spec))
        return total


class _Element:
    """The element of an array of strings or bytes, seen as a field."""

    __slots__ = ("array", "flexible", "name", "wire")

    def __init__(self, spec: FieldSpec) -> None:
        self.array = False
        self.name = spec.name
        self.wire: Wire | None = spec.wire
        self.flexible = spec.flexible


def _element(spec: FieldSpec) -> Any:
    return _Element(spec)


# ---------------------------------------------------------------------------------------------------------- encoding


class _EncoderSource(_Source):
    out = "out"

    def compile(self) -> Callable[..., Any]:
        self.emit("def encode(message, out, regions=None):")
        self.depth += 1
        self.emit("try:")
        self.depth += 1
        self.write_struct("message", self.cls)
        self.flush()
        self.emit("return out")
        self.depth -= 1
        self.emit("except (StructError, AttributeError, TypeError) as error:")
        self.emit(f"    raise NotEncodable(f'{self.cls.__name__} v{self.version}: {{error}}') from error")
        return self.define("encode", "encode")

    def packed(self, formats: str, values: list[str]) -> str:
        pack = self.constant("pack", formats, lambda: struct.Struct(">" + formats).pack)
        return f"{pack}({', '.join(values)})"

    def flush(self) -> None:
        """Write the pending run of fixed-size values."""
        if self.run:
            formats, values = self.take_run()
            if formats in ("x", "B"):
                self.emit(f"{self.out}.append({values[0] if values else 0})")
            else:
                self.emit(f"{self.out} += {self.packed(formats, values)}")

    def take_run(self) -> tuple[str, list[str]]:
        formats = "".join(part for part, _ in self.run)
        values = [value for _, value in self.run if value]  # a pad byte has no value
        self.run.clear()
        return formats, values

    def write_struct(self, source: str, cls: type) -> None:
        for spec in specs(cls):
            value = f"{source}.{spec.name}"
            if not spec.in_version(self.version):
                if not spec.ignorable:
                    self.refuse_absent(cls, value, spec)
            elif spec.tagged_in(self.version):
                continue
            elif self.is_fixed(spec):
                assert spec.wire is not None
                self.run.append((spec.wire.format, value))
            else:
                self.write_value(value, spec)
        if self.flexible:
            self.write_tags(source, cls)

    def refuse_absent(self, cls: type, value: str, spec: FieldSpec) -> None:
        self.emit(f"if {self.differs(value, spec)}:")
        self.emit(f"    refuse('{self.cls.__name__}', {self.version}, '{cls.__name__}.{spec.name}', {value})")

    def differs(self, value: str, spec: FieldSpec) -> str:
        """An expression that is true when the value is not the default."""
        if not spec.has_fresh_default:
            default = spec.default
            if default is None:
                return f"{value} is not None"
            if default is False:
                return value
            if isinstance(default, (int, float, str)):
                return f"{value} != {default!r}"
            return f"{value} != {self.constant('default', default, lambda: default)}"
        if spec.array:
            return f"{value} is None or len({value})"
        parts = [f"({self.differs(f'{value}.{inner.name}', inner)})" for inner in specs(spec.struct)]
        return " or ".join(parts) or "False"

    def write_tags(self, source: str, cls: type) -> None:
        tagged = self.tagged(cls)
        if not tagged:
            self.run.append(("x", ""))
            return
        flags = []
        for spec in tagged:
            flag = self.variable("has")
            self.emit(f"{flag} = bool({self.differs(f'{source}.{spec.name}', spec)})")
            flags.append(flag)
        self.run.append(("B", " + ".join(flags)))
        self.flush()
        outer = self.out
        for spec, flag in zip(tagged, flags, strict=True):
            self.emit(f"if {flag}:")
            self.depth += 1
            self.out = self.variable("body")
            self.emit(f"{self.out} = bytearray()")
            if self.is_fixed(spec):
                assert spec.wire is not None
                self.run.append((spec.wire.format, f"{source}.{spec.name}"))
            else:
                self.write_value(f"{source}.{spec.name}", spec)
            self.flush()
            self.emit(f"{outer}.append({spec.tag})")
            self.emit(f"put_uvarint({outer}, len({self.out}))")
            self.emit(f"{outer} += {self.out}")
            self.depth -= 1
            self.out = outer

    def write_value(self, source: str, spec: FieldSpec) -> None:
        nullable = spec.nullable_in(self.version)
        value = self.variable(spec.name)
        self.emit(f"{value} = {source}")
        if nullable:
            self.write_null_branch(value, spec)
        if spec.array:
            self.write_array(value, spec)
        elif spec.wire is None:
            if nullable:
                self.run.append(("b", "1"))
            self.write_struct(value, spec.struct)
        else:
            self.write_bytes(value, spec)
        if nullable:
            self.flush()
            self.depth -= 1

    def write_null_branch(self, value: str, spec: FieldSpec) -> None:
        """`if value is None: ...` with the pending run in front of the null; opens the `else:` with the same run."""
        if spec.wire is None and not spec.array:
            null = ("b", "-1")
        else:
            null = ("B", "0") if self.compact(spec) else (self.length_format(spec), "-1")
        pending = list(self.run)
        self.emit(f"if {value} is None:")
        self.depth += 1
        self.run.append(null)
        self.flush()
        self.depth -= 1
        self.emit("else:")
        self.depth += 1
        self.run = pending

    def write_length(self, length: str, spec: FieldSpec) -> None:
        """Write the pending run and a length."""
        is_string = not spec.array and spec.wire is not None and spec.wire.kind == "string"
        if not self.compact(spec):
            self.run.append((self.length_format(spec), length))
            self.flush()
            return
        formats, values = self.take_run()
        self.emit(f"if {length} < 127:")
        if formats:
            self.emit(f"    {self.out} += {self.packed(formats + 'B', [*values, f'{length} + 1'])}")
        else:
            self.emit(f"    {self.out}.append({length} + 1)")
        self.emit("else:")
        if formats:
            self.emit(f"    {self.out} += {self.packed(formats, values)}")
        self.emit(f"    {'put_string_length' if is_string else 'put_length'}({self.out}, {length})")

    def write_bytes(self, value: str, spec: FieldSpec) -> None:
        assert spec.wire is not None
        length = self.variable("n")
        if spec.wire.kind == "string":
            self.emit(f"{value} = {value}.encode()")
        self.emit(f"{length} = len({value})")
        self.write_length(length, spec)
        if spec.wire.kind != "records":
            self.emit(f"{self.out} += {value}")
            return
        assert self.out == "out", "record data inside a tagged field has no position"
        self.emit(f"if type({value}) is not FileRegion: out += {value}")
        self.emit(f"elif regions is None: out += {value}.read()")
        self.emit(f"else: regions.append((len(out), {value}))")

    def write_array(self, value: str, spec: FieldSpec) -> None:
        length = self.variable("n")
        self.emit(f"{length} = len({value})")
        if spec.wire is not None and spec.wire.kind == "fixed":
            self.write_fixed_array(value, spec, length)
            return
        self.write_length(length, spec)
        item = self.variable("item")
        self.emit(f"for {item} in {value}:")
        self.depth += 1
        if spec.wire is None:
            before = len(self.lines)
            self.write_struct(item, spec.struct)
            self.flush()
            if len(self.lines) == before:
                self.emit("pass")
        else:
            self.write_bytes(item, _element(spec))
        self.depth -= 1

    def write_fixed_array(self, value: str, spec: FieldSpec, length: str) -> None:
        assert spec.wire is not None
        form = spec.wire.format
        prefix = self.length_format(spec)
        packers = self.constant(
            "packers",
            (prefix, form),
            lambda: tuple(struct.Struct(f">{prefix}{form * n}").pack for n in range(SMALL_ARRAY)),
        )
        self.flush()
        plus = " + 1" if self.compact(spec) else ""
        self.emit(f"if {length} < {SMALL_ARRAY}:")
        self.emit(f"    {self.out} += {packers}[{length}]({length}{plus}, *{value})")
        self.emit("else:")
        self.depth += 1
        self.write_length(length, spec)
        if form == "16s":
            self.emit(f"for item in {value}: {self.out} += item")
        else:
            self.emit(f"{self.out} += pack(f'>{{{length}}}{form}', *{value})")
        self.depth -= 1


def _put_length(out: bytearray, length: int) -> None:
    if length > 0x7FFFFFFE:
        raise TypeError(f"length {length} does not fit")
    put_uvarint(out, length + 1)


def _put_string_length(out: bytearray, length: int) -> None:
    if length > MAX_STRING_BYTES:
        raise TypeError(f"a string of {length} bytes is too long")
    put_uvarint(out, length + 1)


def _refuse(message: str, version: int, name: str, value: object) -> None:
    raise NotEncodable(f"{message} v{version} has no {name}, and {value!r} is not its default")


def _too_many(name: str, count: int, left: int) -> None:
    raise Malformed(f"{name}: {count} elements in {left} bytes")
