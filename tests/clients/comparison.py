"""The answers of Klamm and of Apache Kafka to the same questions, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Answers = Mapping[str, Mapping[str, object]]
"""By question: the leaves of the answer by their paths."""


def differences(ours: Answers, theirs: Answers, on_purpose: Callable[[str, str], bool] = lambda *_: False) -> str:
    """One line for each leaf that differs, and not `on_purpose` (question, path)."""
    return "\n".join(
        f"{question}: {path} is {ours[question].get(path)!r}, Apache Kafka has {theirs[question].get(path)!r}"
        for question in ours
        for path in sorted({*ours[question], *theirs[question]})
        if ours[question].get(path) != theirs[question].get(path) and not on_purpose(question, path)
    )
