"""What reaches the page: only requests from its own machine, its own address and its own script."""

import secrets
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OWN = ("same-origin", "none")
"""Sec-Fetch-Site of the page's own requests, and of an address that a person typed."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets through what knows the token and comes from the page itself.

    The name that the browser was given is checked, as a name of an attacker may be made to lead
    here. `port` is the one that is served.
    """

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with 403."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers.update(HEADERS)
            await send(message)

        reason = self._refusal(scope)
        app = PlainTextResponse(reason, 403) if reason else self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str:
        """Why a request is refused; empty when it is not."""
        headers = Headers(scope=scope)
        hosts = [f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")]
        if headers.getlist("host") not in [[host] for host in hosts]:
            return "This page is served to 127.0.0.1 only."
        token = str(scope["path"]).split("/")[1:2]
        if not token or not secrets.compare_digest(token[0].encode(), self.token.encode()):
            return "The address lacks the token that `latentmill review` printed."
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
        opens_page = scope["method"] == "GET" and mode == "navigate"
        if site not in _OWN and not opens_page:
            return "Requests of other pages are refused."
        origin = headers.get("origin")
        if origin is not None and origin not in [f"http://{host}" for host in hosts]:
            return "Requests of other pages are refused."
        if scope["method"] not in ("GET", "HEAD") and not _is_json(headers):
            return "Only the page's own script may change something."
        return ""


def _is_json(headers: Headers) -> bool:
    """A form of another page cannot send this type without asking first."""
    return headers.get("content-type", "").partition(";")[0].strip() == "application/json"
