"""Commits that have offsets in them, and rivals."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from klamm.pipeline.errors import ConcurrentCommit, NotATable, PipelineError
from klamm.pipeline.table import Change, Location, Table
from klamm.pipeline.table.log import Log
from klamm.pipeline.table.table import first_line
from tests.pipeline.table.samples import P0, P1, SCHEMA, loaded, new_table, offsets_of, written


def test_rows_and_next_offsets_come_with_one_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    assert table.version == 0 and table.next_offsets == {}
    assert loaded(table, range(5)) == 1
    again = Table.open(Location.of(str(tmp_path / "t")))
    assert again.next_offsets == table.next_offsets == {P0: 5}
    assert offsets_of(again) == [(0, offset) for offset in range(5)]
    assert [(file.topic_partition, file.first, file.last, file.records) for file in again.files()] == [(P0, 0, 4, 5)]


def test_a_rival_that_loaded_the_same_partition_is_an_error_and_nothing_is_visible(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    loaded(table, range(5))
    rival = Table.open(table.location)
    loaded(rival, range(5, 8))
    with pytest.raises(
        ConcurrentCommit, match="another job has loaded orders-0 meanwhile, up to 8 where this one began at 5"
    ):
        table.commit(Change({P0: 5}, {P0: 9}, written(table, range(5, 9))))
    assert offsets_of(Table.open(table.location)) == [(0, offset) for offset in range(8)]


def test_a_commit_of_somebody_else_that_leaves_our_offsets_alone_is_followed(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    loaded(table, range(5))
    loaded(Table.open(table.location), range(3), partition=P1)
    assert table.version == 1
    assert table.commit(Change({P0: 5}, {P0: 6}, written(table, range(5, 6)))) == 3
    assert table.next_offsets == {P0: 6, P1: 3}


def test_a_commit_between_the_check_and_ours_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path / "t")
    rival = Table.open(table.location)
    create = DeltaTable.create_write_transaction

    def late(self: DeltaTable, *arguments: object, **keywords: object) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", create)
        loaded(rival, range(2))
        create(self, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    with pytest.raises(ConcurrentCommit):
        table.commit(Change({P0: None}, {P0: 3}, written(table, range(3))))
    assert offsets_of(Table.open(table.location)) == [(0, 0), (0, 1)]


def test_a_commit_that_failed_after_it_was_made_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path / "t")
    create = DeltaTable.create_write_transaction

    def lost_answer(self: DeltaTable, *arguments: object, **keywords: object) -> None:
        create(self, *arguments, **keywords)  # type: ignore[arg-type]
        raise CommitFailedError("timed out")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost_answer)
    assert loaded(table, range(4)) == 1
    assert offsets_of(table) == [(0, offset) for offset in range(4)]


def test_files_are_replaced_and_offsets_set_back_in_one_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    loaded(table, range(5))
    loaded(table, range(5, 10))
    removed = [file for file in table.files() if file.first >= 5]
    added = written(table, range(5, 8), text="new")
    assert table.commit(Change({P0: 10}, {P0: 8}, added, removed)) == 3
    assert table.next_offsets == {P0: 8}
    assert offsets_of(table) == [(0, offset) for offset in range(8)]
    assert len(offsets_of(Table.open(table.location, 2))) == 10
    with pytest.raises(ConcurrentCommit, match="has replaced"):
        table.commit(Change({P0: 8}, {P0: 8}, [], removed))


def test_all_app_transactions_are_those_that_delta_rs_tells_one_by_one(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for end in range(5, 25, 5):
        loaded(table, range(end - 5, end))
        if end == 15:
            table.delta.create_checkpoint()
            (tmp_path / "t/_delta_log/00000000000000000001.json").unlink()
    loaded(table, range(3), partition=P1)
    transactions = Log(table.location).transactions(table.version)
    assert transactions == {"klamm:orders:0": 20, "klamm:orders:1": 3}
    delta = DeltaTable(tmp_path / "t")
    assert transactions == {app: delta.transaction_version(app) for app in transactions}
    assert Log(table.location).transactions(3) == {"klamm:orders:0": 15}


def test_a_missing_version_before_any_checkpoint_is_an_error(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    loaded(table, range(5))
    loaded(table, range(5, 6))
    (tmp_path / "t/_delta_log/00000000000000000001.json").unlink()
    with pytest.raises(NotATable, match="version 1 is missing"):
        Log(table.location).transactions(2)


def test_commits_tell_their_facts_newest_first(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.commit(Change({P0: None}, {P0: 7}, facts={"job": "load", "gaps": {"orders": {"0": [[0, 7]]}}}))
    table.delta.create_write_transaction(
        [], "append", SCHEMA, ["topic", "date"], commit_properties=None, post_commithook_properties=None
    )
    newest, ours, created = table.commits()
    assert (newest.version, newest.facts) == (2, {})
    assert ours.facts["gaps"] == {"orders": {"0": [[0, 7]]}} and ours.timestamp_ms > 0
    assert created.facts == {"job": "load"}


def test_a_path_that_is_no_table_is_one_line(tmp_path: Path) -> None:
    assert Table.open_if_there(Location.of(str(tmp_path / "none"))) is None
    (tmp_path / "empty").mkdir()
    assert Table.open_if_there(Location.of(str(tmp_path / "empty"))) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other/data.csv").write_text("1")
    with pytest.raises(NotATable, match=r"other is not a Delta table: it has no _delta_log, but data.csv"):
        Table.open_if_there(Location.of(str(tmp_path / "other")))
    with pytest.raises(NotATable, match=r"data.csv is a file"):
        Table.open_if_there(Location.of(str(tmp_path / "other/data.csv")))
    (tmp_path / "broken/_delta_log").mkdir(parents=True)
    (tmp_path / "broken/_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(NotATable, match="broken is not a Delta table that can be read"):
        Table.open_if_there(Location.of(str(tmp_path / "broken")))
    with pytest.raises(NotATable, match="xx://a cannot be read"):
        Table.open_if_there(Location.of("xx://a"))


def test_a_table_with_files_that_are_not_what_they_seem_is_refused(tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    DeltaTable.create(tmp_path / "t", SCHEMA, configuration=properties)
    with pytest.raises(NotATable, match="t uses deletionVectors, which is not supported here"):
        Table.open(Location.of(str(tmp_path / "t")))


def test_times_without_a_zone(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("local", pa.timestamp("us")))
    Table.create(Location.of(str(tmp_path / "t")), schema)
    assert Table.open(Location.of(str(tmp_path / "t"))).schema.field("local").type == pa.timestamp("us")


def test_a_creation_that_was_killed_is_made_again(tmp_path: Path) -> None:
    log = tmp_path / "t/_delta_log"
    log.mkdir(parents=True)
    (log / "_commit_2b6a.json.tmp").write_text('{"proto')
    assert Table.open_if_there(Location.of(str(tmp_path / "t"))) is None
    table = new_table(tmp_path / "t")
    loaded(table, range(3))
    assert offsets_of(table) == [(0, 0), (0, 1), (0, 2)]
    for commit in log.glob("*.json"):
        commit.unlink()
    with pytest.raises(NotATable):  # rows without a log
        Table.open_if_there(Location.of(str(tmp_path / "t")))


def test_a_file_that_is_not_where_the_table_is(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    (file,) = written(table, range(3))
    (tmp_path / "t" / file.path).rename(tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match="a task has written this file, but it is not here"):
        table.commit(Change({P0: None}, {P0: 3}, [file]))
    assert table.version == 0


def test_two_jobs_that_create_the_same_table(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    with pytest.raises(ConcurrentCommit, match="another job has created it meanwhile"):
        new_table(tmp_path / "t")


def test_columns_are_added_below_value_too(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path / "t"))
    small, large = (
        pa.schema([pa.field("value", pa.struct(fields)), *(SCHEMA.field(name) for name in SCHEMA.names[2:])])
        for fields in ([pa.field("a", pa.int64())], [pa.field("a", pa.int64()), pa.field("b", pa.string())])
    )
    table = Table.create(location, small)
    table.add_columns(large)
    assert table.schema.field("value").type == large.field("value").type
    assert Table.open(location).version == 1


def test_files_of_a_url_are_written_with_the_options_of_the_log(tmp_path: Path) -> None:
    """`file://` goes the local way; its own object store shows the one that others go."""
    assert Location.of(f"file://{tmp_path}/a%20b").uri == f"{tmp_path}/a b"
    created = new_table(tmp_path / "t")
    table = Table.open(Location(f"file://{tmp_path}/t", (("timeout", "60s"),)))
    loaded(table, range(5))
    created.refresh()
    assert offsets_of(created) == offsets_of(table) == [(0, offset) for offset in range(5)]
    (file,) = created.files()
    assert (tmp_path / "t" / file.path).stat().st_size == file.size_bytes


def test_transactions_of_others_are_left_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    from deltalake import CommitProperties

    table.delta.create_write_transaction(
        [],
        "append",
        SCHEMA,
        ["topic", "date"],
        commit_properties=CommitProperties(app_transactions=[Transaction("a", 3)]),
    )
    loaded(table, range(1))
    assert table.next_offsets == {P0: 1}
    assert DeltaTable(tmp_path / "t").transaction_version("a") == 3


def test_a_page_of_causes_becomes_one_line() -> None:
    page = "Generic S3 error\n    \x1b[31m\u21b3\x1b[0m error sending request:\n  \u21b3 connection refused\n more\n"
    assert first_line(OSError(page)) == "Generic S3 error: error sending request: connection refused"
    assert first_line(ValueError()) == "ValueError"
    assert len(first_line(ValueError("x" * 1000))) == 300
