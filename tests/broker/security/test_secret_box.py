"""Passwords in the store: sealed, opened, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.security.file_modes import NotPrivate, check_private
from klamm.broker.security.secret_box import MARK, SecretBox, Unsealable, add_key, read_keys

KEY = "listener.name.inside.ssl.keystore.password"


def test_a_secret_is_sealed_and_opened_and_other_values_stay(tmp_path: Path) -> None:
    box = SecretBox(tmp_path / "key")
    stored = box.sealed("1", {KEY: "hush", "num.io.threads": "3"})
    assert stored["num.io.threads"] == "3"
    assert stored[KEY].startswith(MARK)
    assert "hush" not in stored[KEY]
    assert box.opened("1", stored) == {KEY: "hush", "num.io.threads": "3"}
    assert SecretBox(tmp_path / "key").opened("1", stored)[KEY] == "hush"


def test_the_key_file_is_made_private_at_first_need(tmp_path: Path) -> None:
    box = SecretBox(tmp_path / "key")
    assert box.sealed("1", {"num.io.threads": "3"}) == {"num.io.threads": "3"}
    assert not (tmp_path / "key").exists()
    box.sealed("1", {KEY: "hush"})
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_sealed_value_belongs_to_its_resource_and_key(tmp_path: Path) -> None:
    box = SecretBox(tmp_path / "key")
    stored = box.sealed("1", {KEY: "hush"})
    with pytest.raises(Unsealable, match="of another place"):
        box.opened("2", stored)
    with pytest.raises(Unsealable, match="of another place"):
        box.opened("1", {"listener.name.inside.ssl.key.password": stored[KEY]})
    for broken in (stored[KEY][:-4] + "AAA=", stored[KEY][:-1], stored[KEY] + "!"):
        with pytest.raises(Unsealable):
            box.opened("1", {KEY: broken})


def test_without_a_key_nothing_is_sealed(tmp_path: Path) -> None:
    with pytest.raises(Unsealable, match=r"klamm\.secret\.key\.file"):
        SecretBox(None).sealed("1", {KEY: "hush"})
    stored = SecretBox(tmp_path / "one").sealed("1", {KEY: "hush"})
    add_key(tmp_path / "two")
    with pytest.raises(Unsealable, match="does not have"):
        SecretBox(tmp_path / "two").opened("1", stored)


def test_a_new_key_goes_first_and_old_values_stay_readable(tmp_path: Path) -> None:
    path = tmp_path / "key"
    old = SecretBox(path).sealed("1", {KEY: "hush"})
    add_key(path)
    box = SecretBox(path)
    assert len(read_keys(path)) == 2
    assert not box.is_current(old)
    assert box.opened("1", old)[KEY] == "hush"
    new = box.sealed("1", {KEY: "hush"})
    assert box.is_current(new)


@pytest.mark.parametrize("text", ["", "abc", "abc:AAAA", "0123456789abcdef:" + "A" * 44])
def test_a_file_that_is_no_key_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ValueError):
        read_keys(path)
    with pytest.raises(Unsealable):
        SecretBox(path).sealed("1", {KEY: "hush"})


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    add_key(path)
    path.chmod(0o640)
    with pytest.raises(NotPrivate, match="chmod 600"):
        check_private(path)
    with pytest.raises(Unsealable, match="chmod 600"):
        SecretBox(path).sealed("1", {KEY: "hush"})
