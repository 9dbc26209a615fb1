"""The scan of the English: each rule finds its breach, and what is plain passes."""

from __future__ import annotations

import pytest

from tests.support import words


def found(source: str) -> list[tuple[int, str]]:
    findings = {finding for text in words.python_texts(source) for finding in text.findings()}
    return [(line, message.split(":")[0].strip("'")) for line, message in sorted(findings)]


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("# the client is told", (1, "told")),
        ("x = 1\n# one line\n# is read\n# anew", (4, "anew")),
        ("log.info('%d records behind the end', n)", (1, "behind")),
        ("raise Error(f'{name} is a group whose members left')", (1, "whose")),
        ("def f():\n    'Keep clients who wait.'", (2, "who")),
        ("# Append what\n# is left.", (2, "what is")),
        ("# One ends. Of the rest none does.", (1, ". Of")),
        ("'Of heartbeats and commits.'", (1, "Of")),
        ("'Our topic has gone.'", (1, "Our")),
        ("class A:\n    'Writes the markers.'", (2, "Writes the")),
        ("def f():\n    'May it be dispatched now?'", (2, "May")),
    ],
)
def test_a_breach_is_found_at_its_line(source: str, finding: tuple[int, str]) -> None:
    assert finding in found(source)


@pytest.mark.parametrize(
    "source",
    [
        "'Return whether the log is open.'",
        "'Whether all of them are durable.'",
        "'Requests that wait for their turn.'",
        "# A consumer that lags behind is someone who waits. Who leads? What is damaged? See `what is` and `told`.",
        "text = 'told'",
        "told = x.anew",
    ],
)
def test_plain_text_passes(source: str) -> None:
    assert not found(source)


def test_comments_of_other_languages_are_scanned() -> None:
    source = "f();\n// asked\n// and told\nString told = a / b; /* begun\n * anew */"
    lines = [line for text in words.code_texts(source) for line, _ in text.findings()]
    assert lines == [3, 5]
