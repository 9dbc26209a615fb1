"""Generating the source of one version's encoder or decoder: lines, names, and the run of fixed-size values.

The source is `exec`ed and registered with linecache, so tracebacks and profilers show it; it also hangs on the function
as `__source__`. Structs are inlined where they are used: the only loops are those over arrays, and no field is looked
up by name at run time.

Neighbouring fixed-size fields are collected in a run and go through one precompiled `struct.Struct`, together with the
length that follows them (for compact lengths its first byte, with a branch for the rare longer ones) or the empty tag
section at the end of a struct. Whoever branches flushes the run before, or takes it into every branch.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.wire import Wire

if TYPE_CHECKING:
    from klamm.protocol.schema import Message

# Arrays of fewer numbers than this go through a table of precompiled formats.
SMALL_ARRAY = 16


class FunctionSource:
    """The function that is being written."""

    def __init__(self, cls: type[Message], version: int, **names: Any) -> None:
        self.cls = cls
        self.version = version
        self.title = f"{cls.__name__} v{version}"
        self.flexible = cls.flexible[0] <= version <= cls.flexible[1]
        self.lines: list[str] = []
        self.depth = 0
        self.run: list[tuple[str, str]] = []  # (struct format, expression or target)
        self._env: dict[str, Any] = {"StructError": struct.error, **names}
        self._constants: dict[tuple[str, Any], str] = {}
        self._counter = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is emitted inside is indented below `head`."""
        self.emit(head)
        self.depth += 1
        yield
        self.depth -= 1

    def variable(self, hint: str) -> str:
        """A fresh name; no two variables or constants of a function share one."""
        self._counter += 1
        return f"{hint}_{self._counter}"

    def constant(self, hint: str, key: Any, make: Callable[[], Any]) -> str:
        """The name of a value that is made now; the same for the same key."""
        name = self._constants.get((hint, key))
        if name is None:
            name = self._constants[hint, key] = self.variable(hint)
            self._env[name] = make()
        return name

    def define(self, role: str) -> Callable[..., Any]:
        """The function `role` that the lines have defined."""
        text = "\n".join(self.lines) + "\n"
        filename = f"<{role} {self.title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        exec(compile(text, filename, "exec"), self._env)
        function: Any = self._env[role]
        function.__source__ = text
        function.__qualname__ = f"{self.cls.__name__}.{role}[{self.version}]"
        return function  # type: ignore[no-any-return]

    def compact(self, spec: FieldSpec) -> bool:
        """Whether the field's length is a varint."""
        return self.flexible and spec.flexible[0] <= self.version <= spec.flexible[1]

    def length_format(self, spec: FieldSpec) -> str:
        """The struct format of the field's length, or of the first byte of a varint."""
        if self.compact(spec):
            return "B"
        return "h" if not spec.array and spec.wire is not None and spec.wire.kind == "string" else "i"

    def in_line(self, spec: FieldSpec) -> bool:
        """Whether the field stands among the others in this version: present, and not tagged."""
        return spec.in_version(self.version) and not spec.tagged_in(self.version)

    def tagged(self, cls: type) -> list[FieldSpec]:
        """The tagged fields of a struct in this version, in the order of their tags."""
        found = [spec for spec in specs(cls) if spec.in_version(self.version) and spec.tagged_in(self.version)]
        return sorted(found, key=lambda spec: spec.tag or 0)


def fixed(spec: FieldSpec) -> Wire | None:
    """The wire type of a field of one size, else None."""
    return spec.wire if spec.wire is not None and spec.wire.kind == "fixed" and not spec.array else None
