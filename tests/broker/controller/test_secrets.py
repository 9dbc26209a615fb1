"""Passwords that are set at run time: sealed in the store, clear in the image, refused without a key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klamm.broker.controller.configs import ConfigUpdate, KeyUpdate, Op, ResourceType
from klamm.broker.controller.controller import Controller
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import StoreCorrupt
from klamm.broker.security.secret_box import MARK, add_key
from klamm.config import BROKER_KEYS, BrokerConfig
from tests.broker.controller.helpers import run
from tests.support.manual_clock import ManualClock

KEY = "listener.name.inside.ssl.keystore.password"
UPDATE = ConfigUpdate(ResourceType.BROKER, "1", [KeyUpdate(KEY, Op.SET, "MARKED-SECRET")])


@pytest.fixture(autouse=True)
def a_password_that_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    row = BROKER_KEYS["ssl.keystore.password"]
    monkeypatch.setitem(BROKER_KEYS, row.name, row._replace(dynamic="per-broker"))


def controller(directory: Path, key: Path | None) -> Controller:
    config = BrokerConfig({} if key is None else {"klamm.secret.key.file": str(key)})
    made = Controller(SqliteStore(directory / FILE_NAME), config, clock=ManualClock(), random_bytes=os.urandom)
    made.start(clean=True)
    return made


def stored_text(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.glob(f"{FILE_NAME}*"))


def test_a_password_is_encrypted_in_the_store_and_survives_a_restart(tmp_path: Path) -> None:
    first = controller(tmp_path, tmp_path / "key")
    assert run(first.update_configs([UPDATE])) == [None]
    assert first.config[KEY] == "MARKED-SECRET"
    first.close()
    assert b"MARKED-SECRET" not in stored_text(tmp_path)
    assert MARK.encode() in stored_text(tmp_path)
    second = controller(tmp_path, tmp_path / "key")
    assert second.image.broker_config("1") == {KEY: "MARKED-SECRET"}
    assert second.config[KEY] == "MARKED-SECRET"
    second.close()


def test_without_a_key_file_a_password_is_refused(tmp_path: Path) -> None:
    made = controller(tmp_path, None)
    (error,) = run(made.update_configs([UPDATE]))
    assert error is not None
    assert "klamm.secret.key.file" in error.message
    assert "MARKED" not in error.message
    assert made.image.broker_config("1") == {}
    made.close()


def test_a_start_encrypts_under_the_newest_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    first = controller(tmp_path, key)
    run(first.update_configs([UPDATE]))
    first.close()
    newest = add_key(key)
    controller(tmp_path, key).close()
    key.write_text(key.read_text().splitlines()[0] + "\n")  # the old key goes
    assert newest in key.read_text()
    third = controller(tmp_path, key)
    assert third.config[KEY] == "MARKED-SECRET"
    third.close()


def test_a_start_without_the_key_of_a_stored_password_is_refused(tmp_path: Path) -> None:
    first = controller(tmp_path, tmp_path / "key")
    run(first.update_configs([UPDATE]))
    first.close()
    with pytest.raises(StoreCorrupt, match=r"/config/brokers/1.*does not have"):
        add_key(tmp_path / "other")
        controller(tmp_path, tmp_path / "other")
    with pytest.raises(StoreCorrupt, match=r"needs klamm\.secret\.key\.file"):
        controller(tmp_path, None)
