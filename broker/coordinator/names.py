"""Names that clients give to themselves, and that coordinators write into records and responses.

They are checked before anything changes. A name that no String can carry would be in memory and could neither be stored
nor listed: every request that meets it would fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.errors import InvalidRequest
from klamm.protocol.wire import MAX_STRING_BYTES, fits_string

ID_BYTES = 37
"""A dash and a UUID: what makes a member id out of a client id."""


def check_names(spare_bytes: int = 0, **names: str | None) -> None:
    """Raise InvalidRequest unless each of the names, and so many bytes more, can be written."""
    for what, name in names.items():
        if name is not None and not fits_string(name, spare_bytes):
            raise InvalidRequest(f"{what} has more than {MAX_STRING_BYTES - spare_bytes} bytes of UTF-8")


def check_each(what: str, names: Iterable[str]) -> None:
    """Check the elements of a list, of which there may be very many: only a long one is looked at more closely."""
    for name in names:
        if len(name) > MAX_STRING_BYTES // 4:
            check_names(0, **{what: name})
