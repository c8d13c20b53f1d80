"""Between the network and the page: no address is fetched for a visitor, and browsers are told to stay here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# The page's own scripts and styles are partly written into it, and pictures are shown from memory (data:, blob:).
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob:; frame-ancestors 'self'"
)


class Guard:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse what would make the server fetch an address; add the policy to the rest."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = unquote(str(scope.get("path", ""))).lower()
        if "/file=http" in path or "/proxy=" in path:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"the page fetches nothing from elsewhere"})
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                headers.append((b"content-security-policy", POLICY.encode()))
                headers.append((b"referrer-policy", b"no-referrer"))
                message["headers"] = headers
            await send(message)

        await self.app(scope, receive, with_policy)
