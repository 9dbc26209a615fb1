"""Topics by regular expression: RE2, as in Kafka, which cannot be made to run for ever. Imported with its first use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from klamm.protocol.errors import ErrorCode, KafkaError

MAX_MEMORY_BYTES = 8 << 20  # of one expression, compiled


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    return options


def compiled(regex: str) -> Any:
    """Raises InvalidRegularExpression."""
    import re2

    try:
        return re2.compile(regex, options=_options())
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{regex!r} is no regular expression of RE2: {text}",
        ) from None


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the whole expression matches. Raises InvalidRegularExpression."""
    matches = compiled(regex).fullmatch
    return frozenset(name for name in names if matches(name))
