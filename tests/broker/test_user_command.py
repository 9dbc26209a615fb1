"""`klamm user` on a stopped and on a running broker; an added user logs in."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klamm.__main__ import main
from klamm.client.blocking import NodeClient
from klamm.client.sasl import Credentials, LoginFailed
from klamm.protocol.messages.metadata import MetadataRequest
from tests.broker.tools.kafka_directory import make_directory, make_partition, topic_id
from tests.support.broker_process import BrokerProcess

LISTENERS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


@contextmanager
def descriptor(text: str) -> Iterator[int]:
    """A file descriptor that gives this text, then ends."""
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    try:
        yield reading
    finally:
        os.close(reading)


def user(data: Path, *arguments: str) -> int:
    return main(["user", *arguments, "--override", f"log.dirs={data}"])


def add(data: Path, name: str, password: str, *more: str) -> int:
    with descriptor(password + "\n") as number:
        return user(data, "add", name, "--password-fd", str(number), *more)


def logs_in(port: int, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    try:
        with NodeClient("127.0.0.1", port, credentials=Credentials(mechanism, name, password)) as client:
            return bool(client.request(MetadataRequest(topics=[])).brokers)
    except LoginFailed:
        return False


def test_the_first_user_is_there_before_the_first_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert add(data, "admin", "first") == 0
    assert data.stat().st_mode & 0o777 == 0o700
    assert add(data, "admin", "pä ss") == 0  # the new password holds
    assert add(data, "b", "pw", "--mechanism", "SCRAM-SHA-256", "--iterations", "8192") == 0
    assert user(data, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["admin SCRAM-SHA-512 iterations=4096", "b SCRAM-SHA-256 iterations=8192"]
    with BrokerProcess(data, LISTENERS) as broker:
        assert logs_in(broker.port, "admin", "pä ss")
        assert not logs_in(broker.port, "admin", "first")
        assert logs_in(broker.port, "b", "pw", "SCRAM-SHA-256")
        assert user(data, "list") == 3
        assert "another process holds" in capsys.readouterr().err
    assert user(data, "delete", "b", "--mechanism", "SCRAM-SHA-256") == 0
    assert user(data, "list") == 0
    assert capsys.readouterr().out.splitlines() == ["admin SCRAM-SHA-512 iterations=4096"]


def test_a_running_broker_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    add(data, "admin", "secret")

    def ask(*arguments: str, password: str = "secret") -> int:
        with descriptor(password) as number:
            where = ["--bootstrap-server", broker.address, "--login", "admin", "--login-password-fd", str(number)]
            return main(["user", *arguments, *where])

    with BrokerProcess(data, LISTENERS) as broker:
        with descriptor("new") as number:
            assert ask("add", "carol", "--password-fd", str(number)) == 0
        assert logs_in(broker.port, "carol", "new")
        assert ask("list") == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["admin", "carol"]
        assert ask("delete", "carol") == 0
        assert not logs_in(broker.port, "carol", "new")
        assert ask("delete", "carol") == 3
        assert "Attempt to delete a user credential that does not exist" in capsys.readouterr().err
        assert ask("list", password="wrong") == 3
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in capsys.readouterr().err
    assert main(["user", "list", "--bootstrap-server", broker.address]) == 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "a", "--password-fd", "999"], "--password-fd 999: Bad file descriptor"),
        (["add", "a"], "there is no terminal"),
        (["delete", "a"], "does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, problem, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert user(tmp_path / "data", *arguments) == 3
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(("password", "problem"), [("", "the password is empty"), ("\n", "the password is empty")])
def test_an_empty_password_is_refused(tmp_path, password, problem, capsys):
    with descriptor(password) as number:
        assert user(tmp_path / "data", "add", "a", "--password-fd", str(number)) == 3
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["add"],
        ["add", "a", "--mechanism", "PLAIN"],
        ["add", "a", "--iterations", "4095"],
        ["list", "--bootstrap-server", "x"],
        ["add", "a", "--password", "x"],
        [],
    ],
)
def test_a_bad_command_line_is_exit_code_2(tmp_path, arguments):
    with pytest.raises(SystemExit) as stopped:
        user(tmp_path / "data", *arguments)
    assert stopped.value.code == 2


def test_a_directory_of_apache_kafka_is_taken_over_first(tmp_path, capsys):
    make_partition(make_directory(tmp_path / "data"), "t-0", topic=topic_id(1))
    assert add(tmp_path / "data", "a", "pw") == 3
    assert "start the broker on it once" in capsys.readouterr().err
    assert not (tmp_path / "data" / "klamm-metadata.db").exists()


def test_the_password_is_in_no_argument_and_in_no_file(tmp_path):
    command = [
        sys.executable,
        "-m",
        "klamm",
        "user",
        "add",
        "a",
        "--password-fd",
        "0",
        "--override",
        f"log.dirs={tmp_path / 'd'}",
    ]
    done = subprocess.run(command, input=b"marked-password", capture_output=True, check=True)
    assert done.stdout == done.stderr == b""
    assert not [
        file for file in (tmp_path / "d").rglob("*") if file.is_file() and b"marked-password" in file.read_bytes()
    ]
