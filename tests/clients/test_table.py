"""The clients' table shows the results of the tests, and no more."""

from __future__ import annotations

from tests.clients.table import COLUMNS, cells, table


def test_cells_failures_and_reasons() -> None:
    first, second, *_ = COLUMNS
    results: list[tuple[dict[str, object], bool]] = [
        ({"client": "sarama", "column": first, "version": "v1.2", "cell": "none, gzip"}, True),
        ({"client": "sarama", "column": second, "version": "v1.2"}, False),
        ({"client": "java-4.4.0", "column": first, "version": "4.4.0", "cell": "yes"}, True),
        ({"client": "java-0.8.2.2", "column": first, "cell": "n/a: needs a JDK"}, True),
        ({"client": "java-0.8.2.2", "column": second, "cell": "sync; n/a: needs a JDK"}, True),
    ]
    lines = table(cells(results)).splitlines()
    assert lines[0].startswith(f"| client | version | {first} | {second} |")
    assert lines[2].startswith("| java-0.8.2.2 |  | n/a (1) | sync; n/a (1) |")
    assert lines[3].startswith("| java | 4.4.0 | yes |")
    assert lines[4].startswith("| sarama | 1.2 | none, gzip | **failed** |")
    assert lines[5:] == ["", "1. needs a JDK"]
