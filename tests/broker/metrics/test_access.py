"""`klamm.metrics.auth`: which users may read the metrics, over HTTP."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
import uvloop

from klamm.broker.metrics import Metrics
from klamm.broker.metrics.access import Access, hashed, parse_access
from klamm.broker.metrics.http import HttpServer
from klamm.config.definitions import ConfigError


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def statuses(access: Access | None, requests: list[tuple[str, str]]) -> list[int]:
    """Status of each GET of a path with an Authorization header."""

    async def one(server: HttpServer, path: str, authorization: str) -> int:
        reader, writer = await asyncio.open_connection(*server.address)
        header = f"Authorization: {authorization}\r\n" if authorization else ""
        writer.write(f"GET {path} HTTP/1.1\r\n{header}Connection: close\r\n\r\n".encode())
        answer = await reader.read(-1)
        writer.close()
        return int(answer.split(b" ", 2)[1])

    async def main() -> list[int]:
        server = HttpServer(Metrics(), healthy=lambda: None, ready=lambda: None, access=access)
        await server.start("127.0.0.1", 0)
        try:
            return [await one(server, *request) for request in requests]
        finally:
            await server.close()

    return uvloop.run(main())


def test_basic_asks_for_a_user_of_the_file(tmp_path: Path) -> None:
    file = private(tmp_path / "users", f"# scrapers\nprometheus:{hashed('Hush: ü')}\n\n")
    requests = [
        ("/metrics", basic("prometheus", "Hush: ü")),
        ("/metrics", basic("prometheus", "Hush: ü")),
        ("/metrics", basic("prometheus", "hush: ü")),
        ("/metrics", basic("nobody", "Hush: ü")),
        ("/metrics", "Basic !!!"),
        ("/metrics", "Bearer x"),
        ("/metrics", ""),
        ("/healthz", ""),
        ("/readyz", ""),
        ("/other", ""),
    ]
    assert statuses(parse_access(f"basic:{file}"), requests) == [200, 200, 401, 401, 401, 401, 401, 200, 200, 404]


def test_bearer_asks_for_a_token_of_the_file(tmp_path: Path) -> None:
    file = private(tmp_path / "tokens", "first-Token\nsecond\n")
    requests = [("/metrics", f"Bearer {token}") for token in ("first-Token", "second", "first-token", "")]
    assert statuses(parse_access(f"bearer:{file}"), requests) == [200, 200, 401, 401]


def test_a_changed_file_counts_at_once_and_an_unreadable_one_lets_nobody_in(tmp_path: Path) -> None:
    file = private(tmp_path / "tokens", "old\n")
    access = parse_access(f"bearer:{file}")
    assert access is not None
    private(file, "newer\n")
    assert statuses(access, [("/metrics", "Bearer old"), ("/metrics", "Bearer newer")]) == [401, 200]
    file.unlink()
    assert statuses(access, [("/metrics", "Bearer newer"), ("/healthz", "")]) == [401, 200]


def test_the_challenge_names_the_scheme(tmp_path: Path) -> None:
    access = parse_access(f"bearer:{private(tmp_path / 'tokens', 'x')}")
    assert access is not None
    assert access.challenge == b'Bearer realm="klamm"'


def test_what_cannot_be_used_is_refused_without_its_content(tmp_path: Path) -> None:
    open_to_all = private(tmp_path / "open", "MARK")
    open_to_all.chmod(0o644)
    broken = private(tmp_path / "broken", "name:MARK")
    for text in ("digest:/x", "basic:", "basic:/absent", f"bearer:{open_to_all}", f"basic:{broken}"):
        with pytest.raises(ConfigError, match=r"klamm\.metrics\.auth") as caught:
            parse_access(text)
        assert "MARK" not in str(caught.value)
    assert parse_access("none") is None
