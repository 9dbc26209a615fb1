"""`${provider:path:key}` in the server's own config."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klamm.config.definitions import ConfigError
from klamm.config.describe import describe_broker
from klamm.config.load import load
from klamm.config.secrets import from_command_line

JAVA = "org.apache.kafka.common.config.provider."
CLASSES = [
    "config.providers=file,dir,env",
    f"config.providers.file.class={JAVA}FileConfigProvider",
    f"config.providers.dir.class={JAVA}DirectoryConfigProvider",
    f"config.providers.env.class={JAVA}EnvVarConfigProvider",
]


def problem_of(*overrides: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, [*CLASSES, *overrides], environ or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_value_comes_from_a_file_a_directory_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("key.password=of the file\nport: 1234\n")
    (tmp_path / "token").write_text("of the directory")
    config = load(
        None,
        [
            *CLASSES,
            f"ssl.key.password=${{file:{tmp_path}/secrets.properties:key.password}}",
            f"ssl.keystore.password=${{dir:{tmp_path}:token}}",
            "ssl.truststore.password=${env:TRUST}",
            f"listeners=PLAINTEXT://${{env:HOST}}:${{file:{tmp_path}/secrets.properties:port}}",
        ],
        {"TRUST": "of the environment", "HOST": "127.0.0.1"},
    )
    assert config["ssl.key.password"] == "of the file"
    assert config["ssl.keystore.password"] == "of the directory"
    assert config["ssl.truststore.password"] == "of the environment"
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:1234"]


def test_a_reference_that_cannot_be_resolved_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("other=MARK")
    (tmp_path / "latin").write_bytes(b"a=\xff")
    for value, words in (
        ("${vault:secret}", "does not name"),
        (f"${{file:{tmp_path}/file:missing}}", "has no key missing"),
        (f"${{file:{tmp_path}/absent:k}}", "No such file"),
        (f"${{file:{tmp_path}/latin:a}}", "not UTF-8"),
        (f"${{dir:{tmp_path}:../file}}", "must be"),
        ("${env:ABSENT}", "no variable ABSENT"),
    ):
        problem = problem_of(f"ssl.key.password={value}")
        assert words in problem, (value, problem)
        assert "ssl.key.password" in problem
        assert "MARK" not in problem


def test_allowed_paths_hold_against_links_and_dots(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "outside").write_text("k=secret")
    (allowed / "link").symlink_to(tmp_path / "outside")
    (allowed / "inside").write_text("k=v")
    bound = f"config.providers.file.param.allowed.paths={allowed}"
    assert load(None, [*CLASSES, bound, f"broker.rack=${{file:{allowed}/inside:k}}"], {})["broker.rack"] == "v"
    for path in (f"{allowed}/../outside", f"{allowed}/link", f"{tmp_path}/outside"):
        assert "allowed.paths" in problem_of(bound, f"broker.rack=${{file:{path}:k}}")


def test_the_allow_list_bounds_variables() -> None:
    bound = "config.providers.env.param.allowlist.pattern=KLAMM_.*"
    environ = {"KLAMM_RACK": "r", "HOME": "h"}
    assert load(None, [*CLASSES, bound, "broker.rack=${env:KLAMM_RACK}"], environ)["broker.rack"] == "r"
    assert "allowlist.pattern" in problem_of(bound, "broker.rack=${env:HOME}", environ=environ)


def test_other_classes_are_refused_and_so_are_those_that_the_process_does_not_allow() -> None:
    problem = problem_of("config.providers.file.class=com.example.Vault", "broker.rack=${file:/x:y}")
    assert "com.example.Vault" in problem
    environ = {"KAFKA_OPTS": f"-Xmx1g -Dorg.apache.kafka.automatic.config.providers={JAVA}FileConfigProvider"}
    assert "KAFKA_OPTS" in problem_of("broker.rack=${env:HOME}", environ=environ)


def test_a_dynamic_value_is_never_resolved() -> None:
    config = load(None, CLASSES, {"HOME": "/root"}).with_dynamic({"some.plugin.key": "${env:HOME}"}, {})
    assert config["some.plugin.key"] == "${env:HOME}"


def test_a_resolved_secret_is_described_as_absent() -> None:
    config = load(None, [*CLASSES, "ssl.key.password=${env:SECRET}", "my.own.key=${env:SECRET}"], {"SECRET": "MARK"})
    entries = [entry for entry in describe_broker(config) if entry.name in ("ssl.key.password", "my.own.key")]
    assert [(entry.value, entry.sensitive) for entry in entries] == [(None, True)] * 2
    assert all(place.text is None for entry in entries for place in entry.synonyms)


def test_variables_that_held_secrets_are_forgotten() -> None:
    environ = {
        "KAFKA_SSL_KEY_PASSWORD": "a",
        "KAFKA_CFG_LISTENER_NAME_X_PLAIN_SASL_JAAS_CONFIG": "b",
        "KAFKA_LOG_DIRS": "/tmp/x",
        "KAFKA_SUPER_SECRET_PLUGIN": "c",
        "RACK": "r",
    }
    load(None, [*CLASSES, "broker.rack=${env:RACK}", "ssl.key.password=${env:RACK}"], environ, forget=environ.pop)
    assert environ == {"KAFKA_LOG_DIRS": "/tmp/x"}


def test_a_secret_on_the_command_line_is_refused_with_a_hint() -> None:
    for name in (
        "ssl.key.password",
        "listener.name.a.scram-sha-256.sasl.jaas.config",
        "listener.name.a.ssl.keystore.key",
    ):
        with pytest.raises(ConfigError) as caught:
            from_command_line([f"{name}=MARK"])
        problem = str(caught.value)
        assert name in problem
        assert "@3" in problem
        assert "MARK" not in problem


def test_a_secret_comes_from_an_open_descriptor() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from the pipe\n")
    os.close(writing)
    assert from_command_line(["log.dirs=@1", f"ssl.key.password=@{reading}"]) == [
        "log.dirs=@1",
        "ssl.key.password=from the pipe",
    ]
    with pytest.raises(ConfigError, match="descriptor 999999"):
        from_command_line(["ssl.key.password=@999999"])


def test_a_reference_to_a_secret_may_stand_on_the_command_line() -> None:
    assert from_command_line(["ssl.key.password=${env:SECRET}"]) == ["ssl.key.password=${env:SECRET}"]
