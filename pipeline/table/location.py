"""The location of a table: a local path or any URL that delta-rs accepts; files are written and read through it.

Local files are synced, so that a commit never names a file that a power cut can remove. Everything else goes through
delta-rs's own object store, with the same storage options as for the log: there a file that was not closed does not
exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from klamm.pipeline.errors import BadOption

LOG_DIRECTORY: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class Location:
    """A path or URL; may be sent to tasks. `uri` is absolute; `options` are delta-rs's storage options."""

    uri: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str, options: Mapping[str, str] | None = None) -> Self:
        """Parse a path, or a URL with a path. Raises BadOption."""
        if not text:
            raise BadOption("the table is a path or a URL, not an empty text")
        if "://" not in text:
            return cls(os.path.abspath(text), tuple((options or {}).items()))
        parts = urlsplit(text)
        if parts.scheme == "file":
            return cls(os.path.abspath(unquote(parts.path)), tuple((options or {}).items()))
        return cls(text.rstrip("/"), tuple((options or {}).items()))

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    def filesystem(self) -> Any:
        """Return Arrow's file system, with paths relative to the table."""
        from pyarrow import fs

        if self.is_local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.storage_options))

    @contextmanager
    def new_file(self, path: str) -> Iterator[Any]:
        """Open a new file that is on disk when the block succeeds. After a failure `vacuum` removes it."""
        if not self.is_local:
            with self.filesystem().open_output_stream(path) as stream:
                yield stream
            return
        target = Path(self.uri, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        for parent in target.relative_to(self.uri).parents:
            _sync(Path(self.uri, parent))

    def sync_log(self, version: int) -> None:
        """Sync a commit, which delta-rs leaves to the kernel: a commit that is reported must survive a power cut."""
        if self.is_local:
            log = Path(self.uri, LOG_DIRECTORY)
            _sync(log / f"{version:020d}.json")
            _sync(log)

    def __str__(self) -> str:
        return self.uri


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
