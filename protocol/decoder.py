"""Compile the decoder of one version of a message: `decode(buf, pos=0, elements=...) -> (message, next position)`.

These rules make it safe. Positions only grow. A fixed field beyond the end of the frame raises in `unpack_from`, and
every length is compared with the end. The count of an array is compared with the bytes left, at the smallest possible
element size, before anything is allocated. Elements are counted over the whole message: above `elements` of them the
decoder stops with `TooManyElements`. Every other error is raised as `Malformed`. A known tagged field with a size that
differs from its content is malformed, too; Apache Kafka ignores that size. A negative length means null, as in Kafka,
where null is allowed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from klamm.protocol.code_generation import SMALL_ARRAY, FunctionSource, fixed
from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.wire import MAX_STRING_BYTES, Malformed, TooManyElements, read_uvarint

if TYPE_CHECKING:
    from klamm.protocol.schema import Message

# An object takes some fifty times the memory of the smallest element on the wire, so the frame size alone does not
# limit the memory of the decoded message. So the elements of all arrays of a message are counted, and other things that
# take time: tagged fields, and long strings, every `BYTES_PER_ELEMENT` of them. (In responses, short arrays of numbers
# do not count.)
MAX_REQUEST_ELEMENTS = 1 << 20
MAX_RESPONSE_ELEMENTS = 1 << 24
BYTES_PER_ELEMENT = 128  # from this size on, the varint of a length has more than one byte


def compile_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """Compile the decoder of a version that the message has."""
    return _DecoderSource(
        cls,
        version,
        Malformed=Malformed,
        TooManyElements=TooManyElements,
        new=object.__new__,
        read_uvarint=read_uvarint,
        too_many=_too_many,
        unpack_from=struct.unpack_from,
    ).compile()


class _DecoderSource(FunctionSource):
    def compile(self) -> Callable[..., Any]:
        limit = MAX_REQUEST_ELEMENTS if self.is_request else MAX_RESPONSE_ELEMENTS
        with self.block(f"def decode(buf, pos=0, elements={limit}):"):
            with self.block("try:"):
                self.emit("end = len(buf)")
                self.read_struct("message", self.cls)
                self.flush()
                self.emit("return message, pos")
            with self.block("except (StructError, IndexError) as error:"):
                self.emit(f"raise Malformed(f'{self.title}: truncated: {{error}}') from error")
            with self.block("except Malformed as error:"):
                self.emit(f"raise type(error)(f'{self.title}: {{error}}') from None")
        return self.define("decode")

    @property
    def is_request(self) -> bool:
        return self.cls.kind == "request"

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
            if self.in_line(spec):
                self.read_value(f"{target}.{spec.name}", spec)
            else:
                self.emit(f"{target}.{spec.name} = {self.default(spec)}")
        if self.flexible:
            self.read_tags(target, cls)

    def default(self, spec: FieldSpec) -> str:
        if spec.has_fresh_default:
            return "[]" if spec.array else f"{self.constant(spec.struct_name, spec.struct, lambda: spec.struct)}()"
        if isinstance(spec.default, (int, float, str, type(None))):
            return repr(spec.default)
        return self.constant("default", spec.default, lambda: spec.default)

    def read_tags(self, target: str, cls: type) -> None:
        tags, tag, size, after = (self.variable(hint) for hint in ("tags", "tag", "size", "after"))
        self.run.append(("B", tags))
        self.flush()
        with self.block(f"if {tags}:"):
            self.emit(f"if {tags} > 127: {tags}, pos = read_uvarint(buf, pos - 1)")
            self.emit(f"if {tags} * 2 > end - pos: raise Malformed('more tagged fields than bytes')")
            self.spend("tagged fields", tags)
            with self.block(f"for _ in range({tags}):"):
                self.emit(f"{tag}, pos = read_uvarint(buf, pos)")
                self.emit(f"{size}, pos = read_uvarint(buf, pos)")
                self.emit(f"{after} = pos + {size}")
                self.emit(f"if {after} > end: raise Malformed('tagged field longer than the frame')")
                for number, spec in enumerate(self.tagged(cls)):
                    with self.block(f"{'elif' if number else 'if'} {tag} == {spec.tag}:"):
                        self.read_value(f"{target}.{spec.name}", spec)
                        self.flush()
                        self.emit(f"if pos != {after}: raise Malformed('tagged field {spec.name} has a wrong size')")
                self.emit(f"pos = {after}")

    def read_value(self, target: str, spec: FieldSpec) -> None:
        """Add a fixed value to the run; read any other at once."""
        wire = fixed(spec)
        if wire is not None:
            self.run.append((wire.format, target))
        elif spec.array:
            self.read_array(target, spec)
        elif spec.wire is None:
            self.read_nested(target, spec)
        else:
            self.read_bytes(target, spec)

    def read_nested(self, target: str, spec: FieldSpec) -> None:
        value = self.variable(spec.name)
        if not spec.nullable_in(self.version):
            self.read_struct(value, spec.struct)
            self.emit(f"{target} = {value}")
            return
        present = self.variable("present")
        self.run.append(("b", present))
        self.flush()
        # Kafka marks a null struct with -1, but with 0 in a tagged field.
        with self.unless_null(target, spec, f"{present} {'<=' if spec.tagged_in(self.version) else '<'} 0"):
            self.read_struct(value, spec.struct)
            self.flush()
            self.emit(f"{target} = {value}")

    def read_length(self, spec: FieldSpec) -> tuple[str, str]:
        """Read a length; return its variable and the condition for null. Compact lengths are one too large."""
        length = self.variable("n")
        self.run.append((self.length_format(spec), length))
        self.flush()
        counts = self.is_request and not spec.array and spec.wire is not None and spec.wire.kind != "records"
        if self.compact(spec) or counts:
            with self.block(f"if {length} >= {BYTES_PER_ELEMENT}:"):
                if self.compact(spec):
                    self.emit(f"{length}, pos = read_uvarint(buf, pos - 1)")
                    if not spec.array and spec.wire is not None and spec.wire.kind == "string":
                        self.emit(f"if {length} > {MAX_STRING_BYTES + 1}: raise Malformed('{spec.name} is too long')")
                if counts:
                    self.spend(spec.name, f"{length} // {BYTES_PER_ELEMENT}")
        return length, f"{length} == 0" if self.compact(spec) else f"{length} < 0"

    @contextmanager
    def unless_null(self, target: str, spec: FieldSpec, is_null: str) -> Iterator[None]:
        """Branch on null, which is assigned or refused; the lines emitted inside are for a value that is present."""
        if spec.nullable_in(self.version):
            self.emit(f"if {is_null}: {target} = None")
            with self.block("else:"):
                yield
        else:
            self.emit(f"if {is_null}: raise Malformed('{spec.name} must not be null')")
            yield

    def read_bytes(self, target: str, spec: FieldSpec) -> None:
        assert spec.wire is not None
        length, is_null = self.read_length(spec)
        after = self.variable("after")
        piece = f"buf[pos:{after}]"
        value = {"string": f"str({piece}, 'utf-8', 'replace')", "bytes": f"bytes({piece})", "records": piece}
        with self.unless_null(target, spec, is_null):
            self.emit(f"{after} = pos + {length}{' - 1' if self.compact(spec) else ''}")
            self.emit(f"if {after} > end: raise Malformed('{spec.name} is longer than the frame')")
            self.emit(f"{target} = {value[spec.wire.kind]}")
            self.emit(f"pos = {after}")

    def read_array(self, target: str, spec: FieldSpec) -> None:
        length, is_null = self.read_length(spec)
        with self.unless_null(target, spec, is_null):
            if self.compact(spec):
                self.emit(f"{length} -= 1")
            if spec.wire is not None and spec.wire.kind == "fixed":
                self.read_fixed_array(target, spec, length)
            else:
                self.read_loop(target, spec, length)

    def read_loop(self, target: str, spec: FieldSpec, length: str) -> None:
        items, item = self.variable(spec.name), self.variable("item")
        smallest = max(1, self.smallest(spec.element()))
        self.emit(f"if {length} * {smallest} > end - pos: too_many('{spec.name}', {length}, end - pos)")
        self.spend(spec.name, length)
        self.emit(f"{items} = []")
        with self.block(f"for _ in range({length}):"):
            if spec.wire is None:
                self.read_struct(item, spec.struct)
            else:
                self.read_bytes(item, spec.element())
            self.flush()
            self.emit(f"{items}.append({item})")
        self.emit(f"{target} = {items}")

    def read_fixed_array(self, target: str, spec: FieldSpec, length: str) -> None:
        assert spec.wire is not None
        form, size = spec.wire.format, spec.wire.size
        readers = self.constant(
            "readers", form, lambda: tuple(struct.Struct(">" + form * n).unpack_from for n in range(SMALL_ARRAY))
        )
        with self.block(f"if {length} < {SMALL_ARRAY}:"):
            self.emit(f"{target} = list({readers}[{length}](buf, pos))")
            if self.is_request:
                self.spend(spec.name, length)
        with self.block("else:"):
            self.emit(f"if {length} * {size} > end - pos: too_many('{spec.name}', {length}, end - pos)")
            self.spend(spec.name, length)
            if form == "16s":
                self.emit(f"{target} = [bytes(buf[i : i + 16]) for i in range(pos, pos + {length} * 16, 16)]")
            else:
                self.emit(f"{target} = list(unpack_from(f'>{{{length}}}{form}', buf, pos))")
        self.emit(f"pos += {length} * {size}")

    def spend(self, name: str, count: str) -> None:
        self.emit(f"elements -= {count}")
        self.emit(f"if elements < 0: raise TooManyElements('{name}: too many elements in one message')")

    def smallest(self, spec: FieldSpec) -> int:
        """Return the fewest bytes that the field takes in this version."""
        wire = fixed(spec)
        if wire is not None:
            return wire.size
        if spec.wire is not None or spec.array:
            return struct.calcsize(">" + self.length_format(spec))
        if spec.nullable_in(self.version):
            return 1
        return int(self.flexible) + sum(self.smallest(inner) for inner in specs(spec.struct) if self.in_line(inner))


def _too_many(name: str, count: int, left: int) -> None:
    raise Malformed(f"{name}: {count} elements in {left} bytes")
