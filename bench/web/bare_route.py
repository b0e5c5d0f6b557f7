"""`python -m bench.web.bare_route`: a Starlette route with a constant page, until SIGTERM."""

import json
import signal
import threading
from functools import cache

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from catalog.server.hosting import HostedApp


@cache
def make_page(size: int) -> str:
    """Return a page of about so many bytes."""
    frame = "<!doctype html><title>constant</title><p>{}</p>"
    return frame.format("x" * max(0, size - len(frame)))


def show_constant(request: Request) -> HTMLResponse:
    """Return the constant page, on a thread as the pages of the site."""
    return HTMLResponse(make_page(int(request.query_params["bytes"])))


def main() -> None:
    """Serve on a free port, which is printed as JSON."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    hosted = HostedApp(Starlette(routes=[Route("/", show_constant)])).start()
    print(json.dumps({"base_url": hosted.base_url}), flush=True)
    stop.wait()
    hosted.stop()


if __name__ == "__main__":
    main()
