"""JAAS entries: those that are read as Kafka reads them, and those refused without a word of their text."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.security.sasl.jaas import JaasError, parse_entries, parse_file
from klamm.config.properties import parse_properties
from tests.support.jars import run_java

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
HARNESS = Path(__file__).parent / "JaasOptions.java"

GOOD = [
    (f"{PLAIN} required;", {}),
    (f'{PLAIN} required user_a="x";', {"user_a": "x"}),
    (f"{PLAIN} REQUIRED user_a='x y' user_b=bare-_$word ;", {"user_a": "x y", "user_b": "bare-_$word"}),
    (f'{PLAIN} optional user_a = "=;{{}}" ;', {"user_a": "=;{}"}),
    (f'{PLAIN} required user_a="\\"\\\\\\n\\t\\101\\7x\\q";', {"user_a": '"\\\n\tA\7xq'}),
    (f'{PLAIN} /* a\n "comment" */ required // more ;\n user_a="//no /*comment*/";', {"user_a": "//no /*comment*/"}),
    (f'{PLAIN} sufficient user_a="";', {"user_a": ""}),
    (f'{PLAIN} required user_a="1" user_a="2";', {"user_a": "2"}),
    (f'{PLAIN} requisite user_a="päßwörd\u4e2d";', {"user_a": "päßwörd\u4e2d"}),
]


@pytest.mark.parametrize(("text", "options"), GOOD)
def test_entries(text, options):
    (entry,) = parse_entries(text)
    assert (entry.module, entry.options) == (PLAIN, options)


@pytest.mark.java
def test_kafka_reads_the_same():
    lines = "".join(text.encode("utf-16-be").hex() + "\n" for text, _ in GOOD)
    answers = run_java("broker", HARNESS, input_text=lines).splitlines()
    expected = [sorted(f"{key}={value}".encode("utf-16-be").hex() for key, value in each.items()) for _, each in GOOD]
    assert [answer.split() for answer in answers] == expected


@pytest.mark.parametrize(
    "text",
    [
        "x",
        f"{PLAIN}",
        f"{PLAIN} required",
        f"{PLAIN} needed;",
        f"{PLAIN} required user_a;",
        f"{PLAIN} required user_a=;",
        f'{PLAIN} required user_a="secret"',
        f'{PLAIN} required user_a="secret',
        f"{PLAIN} required user_a='secret\n';",
        f'{PLAIN} required /* user_a="secret";',
        f"; {PLAIN} required;",
        f"{PLAIN} required =secret;",
        "{ };",
        f'{PLAIN} required user_a="secret" user_b;',
    ],
)
def test_what_is_no_entry_is_refused_without_its_text(text):
    with pytest.raises(JaasError) as refused:
        parse_entries(text)
    assert "secret" not in str(refused.value) and "user_" not in str(refused.value)


def test_an_entry_does_not_show_its_options():
    assert "pw" not in repr(parse_entries(f'{PLAIN} required user_a="pw";'))


def test_several_entries_and_none():
    assert parse_entries(" // nothing\n") == []
    assert [entry.flag for entry in parse_entries(f"{PLAIN} required; {PLAIN} optional;")] == ["required", "optional"]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,10}", fullmatch=True), st.text(max_size=30).filter(lambda t: "\n" not in t)
    )
)
def test_quoted_values_come_back(options):
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    text = f"{PLAIN} required " + " ".join(f'{name}="{value}"' for name, value in escaped.items()) + ";"
    (entry,) = parse_entries(text)
    assert entry.options == options


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(JaasError):
        parse_entries(text)


def test_a_backslash_of_a_properties_file_is_written_four_times():
    (line,) = parse_properties('k=M required user_a="\\\\\\\\";').values()
    (entry,) = parse_entries(line)
    assert entry.options == {"user_a": "\\"}


def test_sections_of_a_file():
    text = f'# a comment\nKafkaServer {{\n {PLAIN} required\n user_a="x"; M optional;\n}};\ninside.KafkaServer {{ }};'
    sections = parse_file(text)
    assert [entry.module for entry in sections["KafkaServer"]] == [PLAIN, "M"]
    assert sections["inside.KafkaServer"] == []


@pytest.mark.parametrize(
    "text", ["KafkaServer", "KafkaServer {", "KafkaServer { M required; }", "{ };", "KafkaServer { M; };"]
)
def test_what_is_no_file_is_refused(text):
    with pytest.raises(JaasError):
        parse_file(text)
