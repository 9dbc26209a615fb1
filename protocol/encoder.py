"""Compile the encoder of one version of a message: `encode(message, out, regions=None) -> out`.

A field that the version does not have is dropped if it is ignorable; otherwise it must have its default. Tagged fields
are written only if they differ from their default. Record data that is a file region is not read: `regions` gets the
region and its position in `out`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from klamm.protocol.code_generation import SMALL_ARRAY, FunctionSource, fixed
from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.regions import FileRegion
from klamm.protocol.wire import MAX_STRING_BYTES, NotEncodable, put_uvarint

if TYPE_CHECKING:
    from klamm.protocol.schema import Message


def compile_encoder(cls: type[Message], version: int, part: type | None = None) -> Callable[..., Any]:
    """Compile the encoder of a version that the message has, or of a struct that is a part of it."""
    return _EncoderSource(
        cls,
        version,
        FileRegion=FileRegion,
        NotEncodable=NotEncodable,
        pack=struct.pack,
        put_length=_put_length,
        put_string_length=_put_string_length,
        put_uvarint=put_uvarint,
        refuse=_refuse,
    ).compile(part or cls)


class _EncoderSource(FunctionSource):
    out = "out"  # the name of the current buffer: tagged fields are first written to one of their own

    def compile(self, part: type) -> Callable[..., Any]:
        with self.block("def encode(message, out, regions=None):"):
            with self.block("try:"):
                self.write_struct("message", part)
                self.flush()
                self.emit("return out")
            with self.block("except (StructError, AttributeError, TypeError) as error:"):
                self.emit(f"raise NotEncodable(f'{self.title}: {{error}}') from error")
        return self.define("encode")

    def flush(self) -> None:
        """Write the pending run of fixed-size values."""
        formats, values = self.take_run()
        if formats in ("x", "B"):
            self.emit(f"{self.out}.append({values[0] if values else 0})")
        elif formats:
            self.emit(f"{self.out} += {self.packed(formats, values)}")

    def take_run(self) -> tuple[str, list[str]]:
        formats = "".join(part for part, _ in self.run)
        values = [value for _, value in self.run if value]  # a pad byte has no value
        self.run.clear()
        return formats, values

    def packed(self, formats: str, values: list[str]) -> str:
        pack = self.constant("pack", formats, lambda: struct.Struct(">" + formats).pack)
        return f"{pack}({', '.join(values)})"

    def write_struct(self, source: str, cls: type) -> None:
        for spec in specs(cls):
            value = f"{source}.{spec.name}"
            if self.in_line(spec):
                self.write_value(value, spec)
            elif not spec.in_version(self.version) and not spec.ignorable:
                with self.block(f"if {self.differs(value, spec)}:"):
                    self.emit(f"refuse('{self.title}', '{cls.__name__}.{spec.name}', {value})")
        if self.flexible:
            self.write_tags(source, cls)

    def differs(self, value: str, spec: FieldSpec) -> str:
        """Return an expression that is true when the value is not the default."""
        default = spec.default
        if spec.has_fresh_default:
            if spec.array:
                return f"{value} is None or len({value})"
            parts = [f"({self.differs(f'{value}.{inner.name}', inner)})" for inner in specs(spec.struct)]
            return " or ".join([f"{value} is None", *parts])
        if default is None:
            return f"{value} is not None"
        if default is False:
            return value
        if isinstance(default, (int, float, str)):
            return f"{value} != {default!r}"
        return f"{value} != {self.constant('default', default, lambda: default)}"

    def write_tags(self, source: str, cls: type) -> None:
        tagged = self.tagged(cls)
        if not tagged:
            self.run.append(("x", ""))
            return
        flags = [self.variable("has") for _ in tagged]
        for spec, flag in zip(tagged, flags, strict=True):
            self.emit(f"{flag} = bool({self.differs(f'{source}.{spec.name}', spec)})")
        self.run.append(("B", " + ".join(flags)))
        self.flush()
        outer = self.out
        for spec, flag in zip(tagged, flags, strict=True):
            with self.block(f"if {flag}:"):
                self.out = self.variable("body")
                self.emit(f"{self.out} = bytearray()")
                self.write_value(f"{source}.{spec.name}", spec)
                self.flush()
                self.emit(f"{outer}.append({spec.tag})")
                self.emit(f"put_uvarint({outer}, len({self.out}))")
                self.emit(f"{outer} += {self.out}")
            self.out = outer

    def write_value(self, source: str, spec: FieldSpec) -> None:
        """Add a fixed value to the run; write any other at once, after the run."""
        wire = fixed(spec)
        if wire is not None:
            self.run.append((wire.format, source))
            return
        value = self.variable(spec.name)
        self.emit(f"{value} = {source}")
        with self.unless_null(value, spec):
            if spec.array:
                self.write_array(value, spec)
            elif spec.wire is None:
                self.write_struct(value, spec.struct)
            else:
                self.write_bytes(value, spec)

    @contextmanager
    def unless_null(self, value: str, spec: FieldSpec) -> Iterator[None]:
        """Branch on null; the lines emitted inside are for a present value. Both branches begin with the run."""
        if not spec.nullable_in(self.version):
            yield
            return
        is_struct = spec.wire is None and not spec.array
        form = "b" if is_struct else self.length_format(spec)
        pending = list(self.run)
        with self.block(f"if {value} is None:"):
            # Kafka marks a null struct with -1, but with 0 in a tagged field.
            self.run.append((form, "0" if form == "B" or (is_struct and spec.tagged_in(self.version)) else "-1"))
            self.flush()
        with self.block("else:"):
            self.run = [*pending, ("b", "1")] if is_struct else pending
            yield
            self.flush()

    def write_length(self, length: str, spec: FieldSpec) -> None:
        """Write the pending run and a length."""
        if not self.compact(spec):
            self.run.append((self.length_format(spec), length))
            self.flush()
            return
        pending = list(self.run)
        with self.block(f"if {length} < 127:"):
            self.run.append(("B", f"{length} + 1"))
            self.flush()
        is_string = not spec.array and spec.wire is not None and spec.wire.kind == "string"
        with self.block("else:"):
            self.run = pending
            self.flush()
            self.emit(f"{'put_string_length' if is_string else 'put_length'}({self.out}, {length})")

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
        with self.block(f"for {item} in {value}:"):
            if spec.encoded:
                with self.block(f"if type({item}) is bytes:"):
                    self.emit(f"{self.out} += {item}")
                    self.emit("continue")
            if spec.wire is None:
                self.write_struct(item, spec.struct)
            else:
                self.write_bytes(item, spec.element())
            self.flush()
            self.emit("pass")  # a struct may be empty in this version

    def write_fixed_array(self, value: str, spec: FieldSpec, length: str) -> None:
        assert spec.wire is not None
        form, prefix = spec.wire.format, self.length_format(spec)
        packers = self.constant(
            "packers",
            (prefix, form),
            lambda: tuple(struct.Struct(f">{prefix}{form * n}").pack for n in range(SMALL_ARRAY)),
        )
        self.flush()
        with self.block(f"if {length} < {SMALL_ARRAY}:"):
            self.emit(f"{self.out} += {packers}[{length}]({length}{' + 1' if prefix == 'B' else ''}, *{value})")
        with self.block("else:"):
            self.write_length(length, spec)
            if form == "16s":
                self.emit(f"for item in {value}: {self.out} += item")
            else:
                self.emit(f"{self.out} += pack(f'>{{{length}}}{form}', *{value})")


def _put_length(out: bytearray, length: int) -> None:
    if length > 0x7FFFFFFE:
        raise TypeError(f"length {length} does not fit")
    put_uvarint(out, length + 1)


def _put_string_length(out: bytearray, length: int) -> None:
    if length > MAX_STRING_BYTES:
        raise TypeError(f"a string of {length} bytes is too long")
    put_uvarint(out, length + 1)


def _refuse(title: str, name: str, value: object) -> None:
    raise NotEncodable(f"{title} has no {name}, and {value!r} is not its default")
