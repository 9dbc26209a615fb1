"""Files, environment and overrides: which wins, refused values, and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.config import ConfigError, load, notes
from klamm.config.load import environment_key

FILES = Path(__file__).parent / "files"


def failure(path=None, overrides=(), environ=None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides, environ or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_source_gives_a_loopback_broker_with_data_beside_it():
    config = load(None, [], {})
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.log_dirs == [Path("data")]
    assert (config.node_id, config.advertised_listeners) == (1, [])
    assert notes(config) == ([], [])


SHARE = "Stored, but without effect yet: share.coordinator.state.topic.min.isr"


def test_the_example_file_shows_the_defaults():
    plain = load(None, [], {})
    config = load(str(FILES.parents[2] / "config" / "server.properties"), [], {})
    assert {name: config[name] for name in config.originals} == {name: plain[name] for name in config.originals}
    assert notes(config) == ([], [])


def test_an_override_wins_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.segment.bytes=2000000\nnode.id=4\n")
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_CFG_LOG_SEGMENT_BYTES": "3000000"}
    config = load(str(file), ["num.partitions=4"], environ)
    assert [config[name] for name in ("num.partitions", "log.segment.bytes", "node.id")] == [4, 3000000, 4]


@pytest.mark.parametrize("name", ["kraft_4_combined", "kraft_4_broker", "kraft_3_combined", "zookeeper_3"])
def test_samples_of_kafka_load_unchanged(name):
    config = load(str(FILES / f"{name}.properties"), [], {})
    infos, warnings = notes(config)
    assert [listener.port for listener in config.listeners] == [9092]
    assert len(infos) == 1 + bool(config.controller_listeners)
    later = [] if name in ("kraft_3_combined", "zookeeper_3") else [SHARE]  # share groups came with Kafka 4
    assert [line.partition(", share")[0] for line in warnings] == later


def test_the_listener_of_the_quorum_stays_closed_and_that_is_said():
    config = load(str(FILES / "kraft_4_combined.properties"), [], {})
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert notes(config)[0][0].startswith("CONTROLLER://:9093 is not opened")


def test_a_controller_without_the_broker_role_is_refused():
    assert "process.roles=controller: Klamm is a broker; add broker" in failure(
        str(FILES / "kraft_4_controller.properties")
    )


def test_broker_id_of_old_files_is_the_node_id():
    assert load(str(FILES / "zookeeper_3.properties"), [], {}).node_id == 0
    assert load(None, ["broker.id=5", "node.id=5"], {}).node_id == 5
    assert "must be equal" in failure(overrides=["broker.id=5", "node.id=6"])


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("LOG_DIRS", "log.dirs"),
        ("LISTENER_NAME_IN__SIDE_MAX_CONNECTIONS", "listener.name.in_side.max.connections"),
        ("LISTENER_NAME_IN___SIDE_MAX_CONNECTIONS", "listener.name.in-side.max.connections"),
    ],
)
def test_underscores_of_the_environment(variable, key):
    assert environment_key(variable) == key


def test_variables_of_the_images_that_are_no_config_are_left_alone():
    environ = {
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "x",
        "KAFKA_JMX_PORT": "1",
        "KAFKA_LOG4J_OPTS": "x",
        "HOME": "/x",
    }
    config = load(None, [], {**environ, "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk"})
    assert config.originals == {"klamm.cluster.id": "MkU3OEVBNTcwNTJENDM2Qk"}


def test_an_unknown_key_is_a_warning_with_the_nearest_name():
    config = load(None, ["log.segmnt.bytes=5", "quite.unlike.anything=5"], {})
    assert notes(config)[1] == [
        "Unknown config key log.segmnt.bytes; did you mean log.segment.bytes?; it has no effect",
        "Unknown config key quite.unlike.anything; it has no effect",
    ]
    assert config["log.segmnt.bytes"] == "5"


def test_an_unknown_key_of_our_own_is_refused():
    assert "did you mean klamm.metrics.listener?" in failure(overrides=["klamm.metric.listener=none"])


def test_keys_without_effect_share_one_warning():
    config = load(None, ["log.segment.bytes=2000000", "remote.log.reader.threads=3", "num.io.threads=9"], {})
    infos, warnings = notes(config)
    assert infos == ["Not needed by Klamm, stored only: num.io.threads"]
    assert warnings == ["Stored, but without effect yet: remote.log.reader.threads"]


@pytest.mark.parametrize(
    "setting",
    [
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "remote.log.storage.system.enable=true",
        "create.topic.policy.class.name=x.Y",
        "security.inter.broker.protocol=SSL",
        "principal.builder.class=x.Y",
        "ssl.keystore.password=${file:/etc/secrets:password}",
    ],
)
def test_what_would_lose_data_or_security_is_refused(setting):
    message = failure(overrides=[setting])
    assert message.startswith("--override: ")
    assert setting.partition("=")[0] in message
    assert "hush" not in message


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "log.segment.bytes=12",
            "--override: Invalid value 12 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            "num.partitions=many",
            "--override: Invalid value many for configuration num.partitions: Not a number of type INT",
        ),
        ("num.partitions", "--override num.partitions: must be key=value"),
        ("log.retention.ms=0", "--override: log.retention.ms must be -1 (unlimited) or at least 1"),
        (
            "max.connections.per.ip.overrides=a:b",
            "--override: max.connections.per.ip.overrides: 'a:b' is not host:count",
        ),
    ],
)
def test_an_error_names_the_bad_value_its_place_and_key(setting, expected):
    assert failure(overrides=[setting]) == expected


def test_a_bad_variable_is_named():
    message = failure(environ={"KAFKA_CFG_NUM_PARTITIONS": "0"})
    assert (
        message
        == "KAFKA_CFG_NUM_PARTITIONS: Invalid value 0 for configuration num.partitions: Value must be at least 1"
    )


def test_a_missing_file_is_one_line(tmp_path):
    assert failure(str(tmp_path / "none")) == f"{tmp_path}/none: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("3MB", "Not a number of type LONG"), ("-1", "Value must be at least 0"), ("", "Not a number")],
)
def test_a_throttle_that_is_no_number_is_not_taken_for_no_limit(text: str, problem: str) -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    with pytest.raises(ConfigError, match=f"--override: .*{problem}"):
        load(None, [f"{name}={text}"], {})
    found = load(None, [f"{name}=1000"], {})
    assert found.integer(name) == 1000
    assert notes(found) == ([], [])
