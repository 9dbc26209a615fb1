"""Topic matching with RE2 expressions, as in Kafka: no expression can run for ever. RE2 is imported on first use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from klamm.protocol.errors import ErrorCode, KafkaError

MAX_MEMORY_BYTES = 8 << 20  # of one compiled expression


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    return options


def compiled(regex: str) -> Any:
    """Return the compiled expression. Raises InvalidRegularExpression."""
    import re2

    try:
        return re2.compile(regex, options=_options())
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{regex!r} is not a valid RE2 expression: {text}",
        ) from None


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that the whole expression matches. Raises InvalidRegularExpression."""
    matches = compiled(regex).fullmatch
    return frozenset(name for name in names if matches(name))
