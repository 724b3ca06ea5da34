"""The review as a web application: a page, pictures by id, and changes as JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from latentmill.datasets.errors import LatentmillError
from latentmill.stages.checking.duplicates import Group
from latentmill.stages.reviewing.guard import Guard
from latentmill.stages.reviewing.pictures import NoPictureError, Pictures
from latentmill.stages.reviewing.replacing import find_replacements
from latentmill.stages.reviewing.requests import ChangesBody, CountBody, ReplaceBody, read_body
from latentmill.stages.reviewing.store import Outcome, Setting, Store, version_of
from latentmill.stages.reviewing.view import (
    STATUSES,
    all_rows,
    group_values,
    outcome_values,
    picture_values,
    token_values,
)

_HERE: Final = Path(__file__).parent
_KEPT: Final = {"Cache-Control": "private, max-age=86400"}
"""For pictures: their address holds a hash of their pixels."""


@dataclass(frozen=True, slots=True)
class Site:
    """One run of the page: what it shows, and the token that its address holds."""

    name: str
    setting: Setting
    store: Store
    pictures: Pictures
    groups: tuple[Group, ...]
    token: str
    port: int

    @property
    def address(self) -> str:
        """What a browser opens."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"


def make_app(site: Site) -> ASGIApp:
    """The application of one run, behind its guard."""
    pages = _Pages(site)
    routes = [
        Route("/", pages.page),
        Route("/rows", pages.rows),
        Route("/stamp", pages.stamp),
        Route("/picture/{id}/{size}", pages.picture),
        Route("/change", pages.change, methods=["POST"]),
        Route("/undo", pages.undo, methods=["POST"]),
        Route("/tokens", pages.tokens, methods=["POST"]),
        Route("/replacements", pages.replacements, methods=["POST"]),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
    ]
    handlers: dict[Any, Any] = {
        LatentmillError: _explained,
        ValidationError: _not_understood,
        HTTPException: _refused,
        OSError: _file_failed,
    }
    app = Starlette(routes=[Mount(f"/{site.token}", routes=routes)], exception_handlers=handlers)
    return Guard(app, site.token, site.port)


@dataclass(frozen=True, slots=True)
class _Pages:
    """The answers; those without `async` run in a thread of their own."""

    site: Site

    def page(self, request: Request) -> Response:
        """The page itself; all texts of the set come later, as JSON."""
        del request
        templates = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True)
        page = templates.get_template("review.html")
        return HTMLResponse(page.render(name=self.site.name, statuses=STATUSES))

    def rows(self, request: Request) -> Response:
        """All rows, pictures and groups of copies."""
        del request
        site, now = self.site, self.site.store.load()
        values = all_rows(now) | {
            "pictures": picture_values(site.setting.records.values()),
            "groups": group_values(site.groups),
            "steps": site.store.num_steps,
        }
        return JSONResponse(values)

    def stamp(self, request: Request) -> Response:
        """What tells whether anything changed."""
        del request
        return JSONResponse({"stamp": self.site.store.load().stamp})

    def picture(self, request: Request) -> Response:
        """A JPEG of the picture with this id; 404 with the reason where there is none."""
        try:
            path = self.site.pictures.show(request.path_params["id"], request.path_params["size"])
        except NoPictureError as error:
            return JSONResponse({"error": str(error)}, 404)
        return FileResponse(path, headers=_KEPT, media_type="image/jpeg")

    async def change(self, request: Request) -> Response:
        """Make one step of changes."""
        body = await read_body(request, ChangesBody)
        wishes = [one.wish() for one in body.changes]
        return self._outcome(await run_in_threadpool(self.site.store.apply, wishes))

    async def undo(self, request: Request) -> Response:
        """Take back the last step."""
        del request
        return self._outcome(await run_in_threadpool(self.site.store.undo))

    async def tokens(self, request: Request) -> Response:
        """Count a caption that is being typed."""
        body = await read_body(request, CountBody)
        trigger = self.site.setting.triggers.get(body.id, "")
        return JSONResponse(await run_in_threadpool(token_values, body.caption, trigger))

    async def replacements(self, request: Request) -> Response:
        """What a rule would change; nothing is changed."""
        body = await read_body(request, ReplaceBody)
        rows = (await run_in_threadpool(self.site.store.load)).reading.rows
        found = await run_in_threadpool(find_replacements, rows, body.rule, body.ids)
        values = [
            {"id": one.row.id, "version": version_of(one.row), "after": one.after} for one in found
        ]
        return JSONResponse({"found": values})

    def _outcome(self, outcome: Outcome) -> Response:
        return JSONResponse(outcome_values(outcome) | {"steps": self.site.store.num_steps})


def _explained(_: Request, error: LatentmillError) -> Response:
    return JSONResponse({"error": str(error)}, 409)


def _not_understood(_: Request, error: ValidationError) -> Response:
    return JSONResponse({"error": "; ".join(one["msg"] for one in error.errors())}, 422)


def _refused(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code)


def _file_failed(_: Request, error: OSError) -> Response:
    return JSONResponse({"error": f"{error.filename or 'a file'}: {error.strerror}"}, 500)
