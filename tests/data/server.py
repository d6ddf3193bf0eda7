"""A local web server that can misbehave: cut downloads, change files, or not support ranges."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """What is served, how, and the requests received."""

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)  # send only so many bytes, one entry for each answer
    ranges: bool = True
    tag: str = '"one"'
    address: str = ""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Range


@contextmanager
def serve(files: dict[str, bytes], **options: Any) -> Iterator[Server]:
    """Serve files from a thread."""
    server = Server(files, **options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            wanted = self.headers.get("Range")
            server.asked.append((self.command, self.path, wanted))
            content = server.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted and server.ranges and self.headers.get("If-Range") in (None, server.tag):
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if server.tag:
                self.send_header("ETag", server.tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if body:
                cut = server.cuts.pop(0) if server.cuts else None
                self.wfile.write(content[start:] if cut is None else content[start : start + cut])
                if cut is not None:
                    self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.address = f"http://127.0.0.1:{running.server_address[1]}"
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
