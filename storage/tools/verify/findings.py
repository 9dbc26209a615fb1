"""The findings of a verification."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: the path, and a problem or, for a note, a fact worth knowing."""

    path: Path
    what: str
    is_note: bool = False

    def __str__(self) -> str:
        return f"{'note' if self.is_note else 'PROBLEM'}: {self.path}: {self.what}"
