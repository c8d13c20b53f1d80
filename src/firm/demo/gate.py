"""What stands between the network and the page: who is answered, how much each may send, and who still listens."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from firm.demo.request import Limits
from firm.demo.workspace import Workspace

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_MESSAGE = 16_000  # bytes of a request that is no picture: those of the page have less than 5,000
MAX_PAINTING = 1_000_000  # bytes of a painted layer, which is mostly empty
MAX_HELD = 32_000_000  # bytes of such requests in memory, all visitors together
MAX_CLIENTS = 10_000  # whose wrong passwords are remembered
LONGEST_DELAY = 30  # seconds after a wrong password; it starts with half a second and doubles
# The page's own scripts and styles are partly written into it, and pictures are shown from memory (data:, blob:).
CONTENT_SECURITY_POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob:; frame-ancestors 'self'"
)


class Site:
    """The names under which something is served; it keeps out names that were rebound to this machine, and other sites.

    Parameters
    ----------
    host, names
        The address that is served, and further names under which it is reached, such as that of a proxy.
    """

    def __init__(self, host: str, names: Sequence[str]) -> None:
        self.names = {name.lower() for name in names}
        self.hosts = {*LOOPBACK, host, *self.names}
        if host not in LOOPBACK:
            self.hosts |= {socket.gethostname().lower(), f"{socket.gethostname().lower()}.local"}

    def refusal(self, scope: dict[str, Any], headers: Headers) -> str | None:
        """Return the words with which a request from elsewhere is refused; None for one that is not."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if _name(host) not in self.hosts and _name(host) != (scope.get("server") or ("",))[0]:
            return "the page is not served under this name; firm demo --name allows another one"
        if origin is not None and _site(origin) != host.lower() and _name(_site(origin)) not in self.names:
            return "the page takes requests from itself, not from other sites"
        return None


class Gate:
    """An ASGI middleware that refuses what no visitor of the page sends, and sends the security policy.

    Refused are requests under a foreign host name (a name that was rebound to this machine), requests from the page of
    another site, requests that make the server fetch an address, bodies larger than the page's own, uploads beyond a
    visitor's share, and passwords while the answer to a wrong one is delayed. Visitors are told apart by their network
    address.

    Parameters
    ----------
    app
        The application behind it.
    host, names
        The address that is served, and further names under which visitors reach it.
    limits, workspace
        How much may be uploaded, and where uploads lie.
    streams
        Counts, for every session and event, the streams on which a client listens; kept up to date here.
    """

    def __init__(
        self, app: Any, host: str, names: Sequence[str], limits: Limits, workspace: Workspace, streams: Counter[str]
    ) -> None:
        self.app, self.limits, self.workspace, self.streams = app, limits, workspace, streams
        self.site = Site(host, names)
        self.arriving, self.failures = Counter[str](), Counter[str]()  # bytes and wrong passwords, for each client
        self.checking: set[str] = set()  # clients whose password is being checked
        self.held = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), unquote(scope["path"]).rstrip("/")
        client, size = (scope.get("client") or ("unknown",))[0], int(headers.get("content-length", 0))
        refusal = self._refusal(scope, headers, path, client, size)
        if refusal is not None:
            while (await receive()).get("more_body"):
                pass  # who is still sending would not see the answer
            await PlainTextResponse(refusal[1], refusal[0])(scope, receive, send)
            return

        async def send_with_policy(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", CONTENT_SECURITY_POLICY.encode())
                message["headers"] = [*message.get("headers", []), policy, (b"referrer-policy", b"no-referrer")]
            await send(message)

        if scope["method"] != "POST":
            await self._listen(scope, path, receive, send_with_policy)
        elif path.endswith("/upload"):
            await self._upload(scope, client, size, receive, send_with_policy)
        else:
            await self._handle(scope, path, client, size, receive, send_with_policy)

    def _refusal(
        self, scope: dict[str, Any], headers: Headers, path: str, client: str, size: int
    ) -> tuple[int, str] | None:
        """Return the status and the words with which a request is refused; None for one that is not."""
        foreign = self.site.refusal(scope, headers)
        if foreign is not None:
            return 403, foreign
        if "/file=http" in path.lower() or "/proxy=" in path.lower():
            return 403, "the page fetches nothing from elsewhere"
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        if "transfer-encoding" in headers:
            return 411, "the length of the request is missing"
        if path.endswith("/upload"):
            if size > (self.limits.megabytes + 1) * 1e6 * self.limits.pictures:  # the page counts each file's
                return 413, f"a file exceeds the size of {self.limits.megabytes} MB"
            mine, all_of_them = self.arriving[client] + size, self.arriving.total() + size
            if mine > self.workspace.share or all_of_them > self.workspace.room:
                return 429, "too many uploads at once: try again when the others have arrived"
        elif size > (MAX_PAINTING + MAX_MESSAGE if path.endswith("/component_server") else MAX_MESSAGE):
            return 413, "the request exceeds the size of those that the page sends"
        elif self.held + size > MAX_HELD:
            return 503, "too many requests at once: try again"
        if path.endswith("/login") and client in self.checking:
            return 429, "a wrong password was sent from your address: wait a few seconds before the next one"
        return None

    async def _listen(self, scope: dict[str, Any], path: str, receive: Any, send: Any) -> None:
        """Count a stream of messages while a client listens to it: that of a session, or that of one event."""
        key = path.rpartition("/")[2] if "/call/" in path else ""
        if path.endswith("/queue/data"):
            key = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
        self.streams[key] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.streams -= Counter({key: 1})  # without those that have none left

    async def _upload(self, scope: dict[str, Any], client: str, size: int, receive: Any, send: Any) -> None:
        """Let an upload through, note whose it is, and make room for it."""
        answer = b""

        async def note_and_send(message: dict[str, Any]) -> None:
            nonlocal answer
            answer += message.get("body", b"")
            await send(message)

        self.arriving[client] += size
        try:
            await self.app(scope, receive, note_and_send)
        finally:
            self.arriving -= Counter({client: size})
            files = []
            with suppress(ValueError):  # a refusal is no JSON
                files = json.loads(answer)
            await asyncio.to_thread(self.workspace.make_room, client, files if isinstance(files, list) else [])

    async def _handle(self, scope: dict[str, Any], path: str, client: str, size: int, receive: Any, send: Any) -> None:
        """Let a small request through once it is here; the answer to a wrong password is delayed."""

        async def delay_and_send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] == 400:
                self.failures[client] += 1
                if len(self.failures) > MAX_CLIENTS:
                    del self.failures[next(iter(self.failures))]
                await asyncio.sleep(min(2.0 ** min(self.failures[client], 10) / 4, LONGEST_DELAY))
            elif message["type"] == "http.response.start" and message["status"] < 400:
                del self.failures[client]
            await send(message)

        login = path.endswith("/login")
        self.held += size
        self.checking |= {client} if login else set()
        try:
            message = await receive()
            body = bytearray(message.get("body", b""))
            while message.get("more_body"):
                message = await receive()
                body += message.get("body", b"")
            whole = [{"type": "http.request", "body": bytes(body)}]
            if message["type"] == "http.request":  # else the client has gone
                await self.app(scope, lambda: _next(whole, receive), delay_and_send if login else send)
        finally:
            self.held -= size
            self.checking -= {client} if login else set()


async def _next(first: list[dict[str, Any]], receive: Any) -> dict[str, Any]:
    """Return the messages of `first`, then those that arrive."""
    return first.pop() if first else dict(await receive())


def _site(origin: str) -> str:
    """Return the host and the port of an origin, in small letters; nothing for "null"."""
    return origin.lower().partition("://")[2]


def _name(host: str) -> str:
    """Return the name, or the address, of a host with or without a port; nothing for what is none."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""
