"""The parser of Spark's options: names in any case, values as text, nothing left over."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, overload

from klamm.pipeline.errors import BadOption

T = TypeVar("T")

NO_GROUPS: Final = "topics are read without a consumer group, and what a stream has read is in its checkpoint"
REASONS: Final = {
    "kafka.group.id": NO_GROUPS,
    "groupIdPrefix": NO_GROUPS,
    "kafka.enable.auto.commit": NO_GROUPS,
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are binary, convert them in the query",
    "kafka.value.deserializer": "values are binary, convert them in the query",
    "kafka.key.serializer": "keys are binary or strings, convert them in the query",
    "kafka.value.serializer": "values are binary or strings, convert them in the query",
    "fetchOffset.numRetries": "use kafka.request.timeout.ms",
    "fetchOffset.retryIntervalMs": "use kafka.request.timeout.ms",
    "kafkaConsumer.pollTimeoutMs": "use kafka.request.timeout.ms",
    "path": "topics are named by options",
}
"""Why some options of the connector do not exist here."""

UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")


class Options:
    """Options to take out one by one; any left at the end are unknown."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._left = {name.lower(): value for name, value in given.items()}
        self._given = frozenset(self._left)
        self._known: list[str] = []

    @overload
    def take(self, name: str) -> str | None: ...

    @overload
    def take(self, name: str, convert: Callable[[str, str], T]) -> T | None: ...

    def take(self, name: str, convert: Callable[[str, str], Any] | None = None) -> Any:
        """Return an option's value, None if it is not given. `convert` gets name and value, and raises BadOption."""
        self._known.append(name)
        text = self._left.pop(name.lower(), None)
        return text if text is None or convert is None else convert(name, text)

    def was_given(self, name: str) -> bool:
        return name.lower() in self._given

    def refuse_rest(self) -> None:
        """Raise BadOption for an option that was not taken, with the reason, or with a similar name."""
        reasons = {name.lower(): (name, reason) for name, reason in REASONS.items()}
        for name in sorted(self._left):
            shown, reason = reasons.get(name, (name, ""))
            if not reason:
                known = {item.lower(): item for item in self._known}
                close = difflib.get_close_matches(name, known, 1, 0.8)
                reason = f"did you mean {known[close[0]]}?" if close else "it is not known here"
            raise BadOption(f"option {shown}: {reason}")


def boolean(name: str, text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise BadOption(f"{name} is true or false, not {text}")
    return value


def positive(name: str, text: str) -> int:
    number = not_negative(name, text)
    if number == 0:
        raise BadOption(f"{name} is a number above 0, not {text}")
    return number


def not_negative(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
        raise BadOption(f"{name} is a number, not {text}")
    return int(text)


def named_list(name: str, text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    if not items:
        raise BadOption(f"{name} is empty")
    return tuple(dict.fromkeys(items))


def duration_s(name: str, text: str) -> float:
    """Parse a time such as 500ms, 30s, 15m; a number alone is milliseconds, as in Spark."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or (match[2] or "ms") not in UNITS_S or int(match[1]) == 0:
        raise BadOption(f"{name} is a time such as 500ms, 30s or 15m, not {text}")
    return int(match[1]) * UNITS_S[match[2] or "ms"]


def one_of(*values: str) -> Callable[[str, str], str]:
    """Return a converter to one of a few words."""

    def convert(name: str, text: str) -> str:
        if (value := text.strip().lower()) not in values:
            raise BadOption(f"{name} is {' or '.join(values)}, not {text}")
        return value

    return convert
