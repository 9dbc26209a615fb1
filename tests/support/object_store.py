"""A store that speaks as much of S3's REST API as delta-rs asks for: objects in memory, conditional puts, multipart.

    with ObjectStore() as store:
        Location.of("s3://bucket/table", store.options)

A process of its own: delta-rs keeps Python's lock while it waits for some answers. No signatures are checked.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape


class ObjectStore:
    """See the module."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.object_store"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options of delta-rs."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "here",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def keys(self, bucket: str) -> list[str]:
        with urlopen(f"{self.url}/{bucket}?list-type=2", timeout=10) as answer:
            return [item.text or "" for item in ET.fromstring(answer.read()).iter("Key")]

    def put(self, key: str, body: bytes) -> None:
        urlopen(Request(f"{self.url}/{key}", body, method="PUT"), timeout=10).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate(timeout=20)  # it ends with its input


class Objects:
    """The objects and uploads of the server."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()


def _handler(store: Objects) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def _asked(self) -> tuple[str, dict[str, str], bytes]:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return unquote(parts.path).lstrip("/"), query, body

        def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            if "Content_Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_PUT(self) -> None:
            key, query, body = self._asked()
            with store.lock:
                if "uploadId" in query:
                    store.uploads[query["uploadId"]][int(query["partNumber"])] = body
                elif self.headers.get("If-None-Match") == "*" and key in store.objects:
                    self._answer(412)
                    return
                else:
                    store.objects[key] = body
            self._answer(200, ETag=_tag(body))

        def do_POST(self) -> None:
            key, query, _ = self._asked()
            with store.lock:
                if "uploads" in query:
                    number = f"upload-{len(store.uploads)}"
                    store.uploads[number] = {}
                    self._xml(
                        f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
                    )
                elif "uploadId" in query:
                    parts = store.uploads[query["uploadId"]]
                    store.objects[key] = b"".join(parts[number] for number in sorted(parts))
                    tag = _tag(store.objects[key])
                    self._xml(
                        f"<CompleteMultipartUploadResult><ETag>{escape(tag)}</ETag></CompleteMultipartUploadResult>"
                    )
                else:
                    self._answer(501)

        def do_GET(self) -> None:
            key, query, _ = self._asked()
            if "list-type" in query:
                self._list(key, query)
                return
            with store.lock:
                body = store.objects.get(key)
            if body is None:
                self._xml("<Error><Code>NoSuchKey</Code></Error>", 404)
                return
            facts = {"ETag": _tag(body), "Last_Modified": "Sat, 21 Nov 2026 00:00:00 GMT"}
            asked = self.headers.get("Range")
            if asked is None or self.command == "HEAD":
                self._answer(200, body, **facts, Content_Length=str(len(body)))
                return
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(len(body) - int(last), 0)
            end = min(int(last) + 1, len(body)) if first and last else len(body)
            self._answer(206, body[start:end], **facts, Content_Range=f"bytes {start}-{end - 1}/{len(body)}")

        do_HEAD = do_GET  # noqa: N815

        def do_DELETE(self) -> None:
            key, _, _ = self._asked()
            with store.lock:
                store.objects.pop(key, None)
            self._answer(204)

        def _list(self, bucket: str, query: dict[str, str]) -> None:
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
            bucket = bucket.rstrip("/") + "/"
            contents, prefixes = "", set()
            with store.lock:
                names = {
                    key.removeprefix(bucket): body for key, body in store.objects.items() if key.startswith(bucket)
                }
            for name, body in sorted(names.items()):
                if not name.startswith(prefix) or name <= query.get("start-after", ""):
                    continue
                rest = name.removeprefix(prefix)
                if delimiter and delimiter in rest:
                    prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
                    continue
                contents += (
                    f"<Contents><Key>{escape(name)}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
                    f"<ETag>{escape(_tag(body))}</ETag><Size>{len(body)}</Size></Contents>"
                )
            common = "".join(
                f"<CommonPrefixes><Prefix>{escape(item)}</Prefix></CommonPrefixes>" for item in sorted(prefixes)
            )
            self._xml(f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>")

        def _xml(self, text: str, status: int = 200) -> None:
            self._answer(status, b'<?xml version="1.0"?>' + text.encode(), Content_Type="application/xml")

    return Handler


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(Objects()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
