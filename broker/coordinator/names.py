"""Checks of the names that clients choose and that coordinators write into records and responses.

Names are checked before anything changes. A name too long for a String would stay in memory but could be neither stored
nor listed: every request that meets it would fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.errors import InvalidRequest
from klamm.protocol.wire import MAX_STRING_BYTES, fits_string

ID_BYTES = 37
"""Size of the suffix that makes a member id from a client id: a dash and a UUID."""


def check_names(spare_bytes: int = 0, **names: str | None) -> None:
    """Raise InvalidRequest unless each name, with `spare_bytes` more bytes, fits into a String."""
    for what, name in names.items():
        if name is not None and not fits_string(name, spare_bytes):
            raise InvalidRequest(f"{what} has more than {MAX_STRING_BYTES - spare_bytes} bytes of UTF-8")


def check_each(what: str, names: Iterable[str]) -> None:
    """Check the elements of a list, which may be very many: only names that may be too long are encoded."""
    for name in names:
        if len(name) > MAX_STRING_BYTES // 4:
            check_names(0, **{what: name})
