"""The limits of config keys. Their `str` and error texts are worded as Kafka's, which clients and people know."""

from __future__ import annotations

from typing import NamedTuple

from klamm.config.definitions import Value


class Range(NamedTuple):
    """A number of at least `least` and, if given, at most `most`; `also` is one more value that is allowed."""

    least: float | None = None
    most: float | None = None
    also: int | None = None

    def problem(self, value: Value) -> str | None:
        if value is None:
            return "Value must be non-null"
        assert isinstance(value, int | float)
        too_small = self.least is not None and not value >= self.least
        too_large = self.most is not None and not value <= self.most
        if not (too_small or too_large) or value == self.also:
            return None
        if self.also is not None and self.most is not None:
            return f"Value must be between {self.least} and {self.most} or equal to {self.also}"
        limit = f"at least {self.least}" if too_small else f"no more than {self.most}"
        return f"Value must be {limit}" + (f" or equal to {self.also}" if self.also is not None else "")

    def __str__(self) -> str:
        limits = f"[{self.least},...]" if self.most is None else f"[{self.least},...,{self.most}]"
        return limits + (f" or {self.also}" if self.also is not None else "")


class OneOf(NamedTuple):
    """One of some words, exactly as written."""

    words: tuple[str, ...]

    def problem(self, value: Value) -> str | None:
        return None if value in self.words else f"String must be one of: {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class OneOfIgnoringCase(NamedTuple):
    """One of some words, in upper or lower case."""

    words: tuple[str, ...]

    def problem(self, value: Value) -> str | None:
        if isinstance(value, str) and value.upper() in self.words:
            return None
        return f"String must be one of (case insensitive): {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.words)}]"


class Words(NamedTuple):
    """A list without empty or repeated items, each one of `words` (any, if there are none)."""

    words: tuple[str, ...] = ()
    empty_allowed: bool = True

    def problem(self, value: Value) -> str | None:
        if value is None:
            return None
        assert isinstance(value, list)
        if not value:
            return None if self.empty_allowed else "values must not be empty"
        if len(set(value)) != len(value):
            return "values must not be duplicated"
        if "" in value:
            return "values must not contain an empty item"
        wrong = [item for item in value if self.words and item not in self.words]
        return f"String must be one of: {', '.join(self.words)}" if wrong else None

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" if self.words else ""


class NotEmpty(NamedTuple):
    """A text that is absent or has at least one character."""

    def problem(self, value: Value) -> str | None:
        return "String must be non-empty" if value == "" else None

    def __str__(self) -> str:
        return "non-empty string"


class Principals(NamedTuple):
    """Principals of the form `Type:name`, separated by semicolons."""

    def problem(self, value: Value) -> str | None:
        parts = str(value).split(";") if value is not None else []
        wrong = [part.strip() for part in parts if part.strip() and ":" not in part]
        return f"{wrong[0]!r} is not of the form Type:name" if wrong else None

    def __str__(self) -> str:
        return "Type:name;Type:name;..."


class ThrottledReplicas(NamedTuple):
    """Nothing, `*`, or pairs of partition and broker: `0:1,0:2`."""

    def problem(self, value: Value) -> str | None:
        assert isinstance(value, list)
        if value == ["*"] or not value:
            return None
        for pair in value:
            partition, colon, broker = pair.partition(":")
            if not (colon and partition.isdecimal() and broker.isdecimal()):
                return "must be the literal '*' or a list of replicas as [partitionId]:[brokerId],..."
        return None

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
