"""What Java and Apache Kafka make of names and of mapping rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.jars import run_java


def ask(lines: Sequence[str]) -> list[str]:
    """The answers to `name ...` and `rules ...`, see DistinguishedNames.java; a text begins with `=`."""
    source = Path(__file__).with_name("DistinguishedNames.java")
    options = ["-Dfile.encoding=UTF-8"]
    answers = run_java("clients", source, input_text="".join(f"{line}\n" for line in lines), options=options).split()
    assert len(answers) == len(lines)
    return ["=" + bytes.fromhex(answer[1:]).decode() if answer.startswith("=") else answer for answer in answers]
