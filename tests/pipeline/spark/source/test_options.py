"""Options: their meaning, and one line for a bad one."""

from __future__ import annotations

import pytest

from klamm.pipeline.errors import BadOption
from klamm.pipeline.kafka.cluster import READ_COMMITTED, READ_UNCOMMITTED
from klamm.pipeline.ranges import EARLIEST, LATEST, TopicPartition
from klamm.pipeline.spark.source.options import BATCH, STREAM, Connection, Kind, parse

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def test_defaults_are_those_of_the_connector_but_for_aborted_records() -> None:
    options = parse(BASE, BATCH)
    assert options.connection == Connection("a:1")
    assert options.topics == ("t",)
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss and not options.include_headers
    assert options.isolation == READ_COMMITTED
    assert parse(BASE, STREAM).starting.everywhere == LATEST


def test_names_may_be_written_in_any_case() -> None:
    given = {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "t, u,t", "failondataloss": "FALSE", "minPartitions": "4"}
    options = parse({**given, "kafka.isolation.level": "read_uncommitted", "includeheaders": "true"}, BATCH)
    assert options.topics == ("t", "u")
    assert not options.fail_on_data_loss and options.include_headers
    assert options.min_partitions == 4 and options.isolation == READ_UNCOMMITTED


def test_a_time_for_all_goes_before_times_and_these_before_offsets() -> None:
    offsets = {"startingOffsets": '{"t": {"0": 5}}'}
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 1000}}'}
    time = {"startingTimestamp": "2000"}
    assert parse({**BASE, **offsets}, BATCH).starting.offsets == {TopicPartition("t", 0): 5}
    assert parse({**BASE, **offsets, **times}, BATCH).starting.timestamps == {TopicPartition("t", 0): 1000}
    assert parse({**BASE, **offsets, **times, **time}, BATCH).starting.timestamp == 2000


@pytest.mark.parametrize(
    ("kind", "given", "line"),
    [
        (BATCH, {"subscribe": None}, "exactly one of subscribe, subscribePattern, assign says what to read, not none"),
        (BATCH, {"subscribePattern": "t"}, "exactly one of .* not subscribe and subscribePattern"),
        (BATCH, {"subscribe": " ,"}, "subscribe is empty"),
        (BATCH, {"subscribe": None, "subscribePattern": "["}, r"subscribePattern \[ is not a regular expression"),
        (BATCH, {"subscribe": None, "assign": "t"}, "assign has the form"),
        (BATCH, {"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers is missing"),
        (BATCH, {"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers has the form host:port"),
        (BATCH, {"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol is SASL_SSL: only PLAINTEXT"),
        (BATCH, {"kafka.isolation.level": "read"}, "kafka.isolation.level is read_committed or read_uncommitted"),
        (BATCH, {"startingOffsets": "latest"}, r"startingOffsets of a batch cannot be latest \(-1\)"),
        (BATCH, {"startingOffsets": '{"t": {"0": -1}}'}, r"startingOffsets of a batch cannot be latest \(-1\)"),
        (BATCH, {"endingOffsets": "earliest"}, r"endingOffsets of a batch cannot be earliest \(-2\)"),
        (BATCH, {"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets has offset -3"),
        (BATCH, {"startingOffsets": "begin"}, "startingOffsets has the form .* not begin"),
        (BATCH, {"startingTimestamp": "yesterday"}, "startingTimestamp is a number, not yesterday"),
        (BATCH, {"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy is error or latest"),
        (BATCH, {"minPartitions": "0"}, "minPartitions is a number above 0, not 0"),
        (BATCH, {"failOnDataLoss": "no"}, "failOnDataLoss is true or false, not no"),
        (BATCH, {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        (STREAM, {"endingOffsets": "latest"}, "endingOffsets is for batches: a stream has no end"),
        (STREAM, {"endingTimestamp": "1"}, "endingTimestamp is for batches: a stream has no end"),
        (STREAM, {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger 5 is above"),
        (STREAM, {"maxTriggerDelay": "5s"}, "maxTriggerDelay belongs to minOffsetsPerTrigger"),
        (STREAM, {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTriggerDelay is a time such as"),
        (BATCH, {"startingOffset": "earliest"}, "option startingoffset: did you mean startingOffsets?"),
        (BATCH, {"kafka.group.id": "g"}, "option kafka.group.id: topics are read without a consumer group"),
        (BATCH, {"kafka.ssl.truststore": "g"}, "option kafka.ssl.truststore: it is not known here"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(kind: Kind, given: dict[str, str | None], line: str) -> None:
    options = {name: value for name, value in {**BASE, **given}.items() if value is not None}
    with pytest.raises(BadOption, match=f"^{line}") as raised:
        parse(options, kind)
    assert "\n" not in str(raised.value)


def test_times_have_units() -> None:
    given = {**BASE, "minOffsetsPerTrigger": "5"}
    assert parse(given, STREAM).max_trigger_delay_s == 900
    assert parse({**given, "maxTriggerDelay": "90s"}, STREAM).max_trigger_delay_s == 90
    assert parse({**given, "maxTriggerDelay": "250"}, STREAM).max_trigger_delay_s == 0.25
