"""The audit log: one line for each event, whatever the names are, and nothing that stops the broker."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.security.authorizer.audit import MAX_UNWRITTEN, AuditLog, Question, open_file
from klamm.broker.security.authorizer.standard import StandardAuthorizer
from tests.support.manual_clock import ManualClock

AUTHORIZER = StandardAuthorizer([Acl(2, "t", 3, "User:a", "*", 3, 2)])
QUESTION = Question("User:a", "10.0.0.1", 3, 2, "t", "Fetch")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_denial_is_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "klamm.audit")
    AuditLog(None, ManualClock()).denied(QUESTION, AUTHORIZER)
    acl = "resourceType=TOPIC, resourceName='t', patternType=LITERAL, principal='User:a', host='*', operation=READ"
    assert caplog.text.endswith(
        "Principal = User:a is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for request "
        "= Fetch with resourceRefCount = 1 based on rule "
        f"MatchingAcl(acl=StandardAcl({acl}, permissionType=DENY))\n"
    )


def test_allowed_operations_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(None, ManualClock())
    assert not log.has_allowed
    caplog.set_level(logging.DEBUG, "klamm.audit")
    assert log.has_allowed
    log.allowed(QUESTION, StandardAuthorizer(super_users=["User:a"]))
    assert caplog.messages[0].startswith("Principal = User:a is Allowed")
    assert caplog.messages[0].endswith("based on rule SuperUser")


def test_the_file_has_a_json_object_in_each_line(path: Path) -> None:
    clock = ManualClock(wall_ms=1_700_000_000_123)
    log = AuditLog(open_file(str(path)), clock)
    log.denied(QUESTION, AUTHORIZER)
    log.changed("User:b", "10.0.0.2", "CreateAcls", "an ACL")
    log.close()
    denied, changed = lines(path)
    assert denied["time"] == "2023-11-14T22:13:20.123Z"
    assert (denied["event"], denied["operation"], denied["resource_type"]) == ("denied", "READ", "TOPIC")
    assert (changed["event"], changed["principal"], changed["what"]) == ("changed", "User:b", "an ACL")


def test_a_name_cannot_forge_a_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Row 12 of the hostile inputs, as far as it is the log's."""
    caplog.set_level(logging.INFO, "klamm.audit")
    log = AuditLog(open_file(str(path)), ManualClock())
    name = 'x\nPrincipal = User:root is Allowed\r\x1b[2J\x00"}\n{"'
    log.denied(QUESTION._replace(name=name, principal="User:\n"), AUTHORIZER)
    log.close()
    assert [line["resource_name"] for line in lines(path)] == [name]
    assert all(message.isprintable() for message in caplog.messages)


def test_equal_denials_are_counted_and_logged_once_a_second(path: Path) -> None:
    clock = ManualClock()
    log = AuditLog(open_file(str(path)), clock)
    for _ in range(5):
        log.denied(QUESTION, AUTHORIZER)
    log.denied(QUESTION._replace(name="other"), AUTHORIZER)
    clock.advance(1000)
    log.denied(QUESTION, AUTHORIZER)
    log.close()
    assert [(line["resource_name"], line["left_out"]) for line in lines(path)] == [("t", 0), ("other", 0), ("t", 4)]
    assert log.denied_count == 7


def test_the_file_is_ours_alone(path: Path) -> None:
    os.close(open_file(str(path)))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(OSError, match=r"klamm\.audit\.log=.*mode 0600"):
        open_file(str(path))
    link = path.with_name("link")
    link.symlink_to(path)
    for wrong in (link, path.parent, path / "below"):
        with pytest.raises(OSError, match=r"klamm\.audit\.log="):
            open_file(str(wrong))


def test_a_full_disk_stops_nothing_and_is_counted() -> None:
    log = AuditLog(os.open("/dev/full", os.O_WRONLY), ManualClock())
    log.changed("User:b", "10.0.0.2", "CreateAcls", "an ACL")
    log.close()
    assert log.lost_count == 1


def test_lines_that_wait_have_a_bound(path: Path) -> None:
    log = AuditLog(open_file(str(path)), ManualClock())
    log._write = lambda: None  # type: ignore[method-assign]  # a disk that does not come back
    for _ in range(MAX_UNWRITTEN + 7):
        log.changed("User:b", "10.0.0.2", "CreateAcls", "an ACL")
    assert log.lost_count == 7
    log.close()
