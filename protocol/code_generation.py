"""Generate the source of one version's encoder or decoder: lines, names, and runs of fixed-size values.

The source is `exec`ed and registered with linecache, so tracebacks and profilers show it; the function also has it as
`__source__`. Structs are inlined: the only loops are those over arrays, and no field is looked up by name at run time.

Adjacent fixed-size fields are collected in a run and packed by one precompiled `struct.Struct`, together with the
length that follows them (of a compact length the first byte, with a branch for the rare longer ones) or the empty tag
section at the end of a struct. Code that branches first flushes the run, or takes it into every branch.
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
    """The source of a function during its generation."""

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
        """Indent the lines emitted inside below `head`."""
        self.emit(head)
        self.depth += 1
        yield
        self.depth -= 1

    def variable(self, hint: str) -> str:
        """Return a fresh name; no two variables or constants of a function share one."""
        self._counter += 1
        return f"{hint}_{self._counter}"

    def constant(self, hint: str, key: Any, make: Callable[[], Any]) -> str:
        """Return the name of a value that is made now; the same key always gives the same name."""
        name = self._constants.get((hint, key))
        if name is None:
            name = self._constants[hint, key] = self.variable(hint)
            self._env[name] = make()
        return name

    def define(self, role: str) -> Callable[..., Any]:
        """Return the function `role` that the lines have defined."""
        text = "\n".join(self.lines) + "\n"
        filename = f"<{role} {self.title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        exec(compile(text, filename, "exec"), self._env)
        function: Any = self._env[role]
        function.__source__ = text
        function.__qualname__ = f"{self.cls.__name__}.{role}[{self.version}]"
        return function  # type: ignore[no-any-return]

    def compact(self, spec: FieldSpec) -> bool:
        """Return whether the field's length is a varint."""
        return self.flexible and spec.flexible[0] <= self.version <= spec.flexible[1]

    def length_format(self, spec: FieldSpec) -> str:
        """Return the struct format of the field's length, or of the first byte of a varint."""
        if self.compact(spec):
            return "B"
        return "h" if not spec.array and spec.wire is not None and spec.wire.kind == "string" else "i"

    def in_line(self, spec: FieldSpec) -> bool:
        """Return whether the field is among the plain fields of this version: present, and not tagged."""
        return spec.in_version(self.version) and not spec.tagged_in(self.version)

    def tagged(self, cls: type) -> list[FieldSpec]:
        """Return the tagged fields of a struct in this version, in the order of their tags."""
        found = [spec for spec in specs(cls) if spec.in_version(self.version) and spec.tagged_in(self.version)]
        return sorted(found, key=lambda spec: spec.tag or 0)


def fixed(spec: FieldSpec) -> Wire | None:
    """Return the wire type of a fixed-size field, else None."""
    return spec.wire if spec.wire is not None and spec.wire.kind == "fixed" and not spec.array else None
