"""The receiver of webhooks (ASGI): a delivery is verified, written to the inbox, acknowledged.

    POST <path>    204 stored; 401 not signed by a secret; 413 over 256 KiB; 400 incomplete;
                   408 too slow; 503 not stored: send it again
    GET <path>     200, also for HEAD: a service that registers the endpoint may ask for it
    GET /healthz   200 while deliveries can be stored

The signature is of the raw bytes, so nothing decodes a body before it is verified, and a body whose
headers have no signature is not read. With `--merge`, a thread lands and merges
what arrives.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from almanac.core.errors import WarehouseError
from catalog.contract.errors import BodyTooLarge, BodyTooSlow
from catalog.contract.signatures import SignatureRejected, Verifier
from catalog.server.body_limit import BODY_WITHIN_S, BodyReader
from pipeline.settings import Settings, SettingsError
from resources.request_log import read_push_plan
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

BODY_MAX: Final = 262_144
"""Bytes of one delivery."""
HEALTH_PATH: Final = "/healthz"
MERGE_EVERY_S: Final = 30.0
"""Other processes land batches too, so there is a merge without a new delivery."""
_REFUSALS_LOGGED_EVERY_S: Final = 60.0

log = logging.getLogger(__name__)


class RequestRefused(Exception):
    """A request that is answered with an error; `reason` is a short code that people can read."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def make_verifier(settings: Settings) -> Verifier:
    """Return the verifier of the secrets as they are now: a file is read each time.

    Raises:
        SettingsError: no secret is set, or one can't be used.
    """
    secrets = settings.signing_secrets()
    if not secrets:
        raise SettingsError(
            "no signing secret is set, so no webhook could be verified. Nothing was started; set "
            "ALMANAC_WEBHOOK_SECRETS, or the file almanac_webhook_secrets in ALMANAC_SECRETS_DIR, "
            "to the secret that the service shows for the endpoint."
        )
    try:
        return Verifier(
            [secret.get_secret_value() for secret in secrets],
            header=settings.signature_header,
        )
    except ValueError as error:
        raise SettingsError(f"ALMANAC_WEBHOOK_SECRETS can't be used: {error}") from error


class Receiver:
    """Receives the deliveries to one inbox; `app` is the ASGI application.

    `verifier` returns the verifier of the current secrets, `clock` the service's time. `stored` is
    called after each delivery that was stored.
    """

    def __init__(
        self,
        verifier: Callable[[], Verifier],
        inbox: Inbox,
        clock: Callable[[], datetime],
        *,
        path: str,
        stored: Callable[[], None] = lambda: None,
        body_within_s: float = BODY_WITHIN_S,
    ) -> None:
        self._verifier = verifier
        self._inbox = inbox
        self._clock = clock
        self._on_stored = stored
        self._bodies = BodyReader(body_max=BODY_MAX, within_s=body_within_s)
        self._is_failing = False
        self._refusals: Counter[str] = Counter()
        self._logged_at = -_REFUSALS_LOGGED_EVERY_S
        self.app = Starlette(
            routes=[
                Route(HEALTH_PATH, self._show_health),
                # Not every sender follows a redirect to the path without a slash.
                Route(path, self._answer, methods=["GET", "POST"]),
                Route(path.rstrip("/") + "/", self._answer, methods=["GET", "POST"]),
            ],
            exception_handlers={RequestRefused: self._refuse},
        )
        self.app.router.redirect_slashes = False

    async def _answer(self, request: Request) -> Response:
        return await (self._receive if request.method == "POST" else self._show_health)(request)

    async def _receive(self, request: Request) -> Response:
        try:
            verifier = self._verifier()
            verifier.check_head(request.headers.raw)
            body = await self._bodies.read(request.scope, request.receive)
            now = self._clock()
            verifier.verify(request.headers.raw, body, now=now)
            await asyncio.to_thread(self._inbox.store, body, now)
        except SignatureRejected as rejection:
            raise RequestRefused(401, rejection.reason) from None
        except ClientDisconnect:
            raise RequestRefused(400, "incomplete") from None
        except BodyTooLarge:
            raise RequestRefused(413, "too large") from None
        except BodyTooSlow:
            raise RequestRefused(408, "too slow") from None
        # Whatever it is, the sender sends the delivery again.
        except Exception as error:
            is_unforeseen = not isinstance(error, OSError | SettingsError)
            message = "A delivery could not be stored, and is refused: %s"
            log.error(message, error, exc_info=is_unforeseen)
            self._is_failing = isinstance(error, OSError)
            raise RequestRefused(503, "not stored") from None
        self._is_failing = False
        self._on_stored()
        return Response(status_code=204)

    async def _refuse(self, request: Request, refusal: Exception) -> Response:
        assert isinstance(refusal, RequestRefused)
        self._refusals[refusal.reason] += 1
        if monotonic() - self._logged_at >= _REFUSALS_LOGGED_EVERY_S:
            counts = ", ".join(f"{count} {reason}" for reason, count in self._refusals.items())
            log.warning("Refused requests: %s.", counts)
            self._logged_at = monotonic()
            self._refusals.clear()
        headers = {"Retry-After": "5"} if refusal.status == 503 else None
        return JSONResponse({"error": refusal.reason}, refusal.status, headers)

    async def _show_health(self, request: Request) -> Response:
        if self._is_failing:
            try:
                await asyncio.to_thread(self._inbox.check_writable)
            except OSError:
                return JSONResponse({"status": "not storing"}, 503, {"Retry-After": "5"})
            self._is_failing = False
        return JSONResponse({"status": "receiving"})


class MergeThread:
    """Lands and merges in the background from `start` to `stop`; `wake` says that there is work.

    A failure is logged and tried again. Nothing is lost meanwhile: deliveries stay in the inbox,
    and batches in landing.
    """

    def __init__(self, home: Home, clock: Callable[[], datetime]) -> None:
        self._home = home
        self._clock = clock
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="almanac-merge")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Wait until the merge in progress has ended; other deliveries stay in the inbox."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                Inbox(self._home, read_push_plan(self._home.state)).land(self._clock)
                if self._home.landing.pending():
                    merge(self._home)
            # Whatever it is, deliveries are acknowledged meanwhile, so merging must not end.
            except Exception as error:
                is_unforeseen = not isinstance(error, WarehouseError | OSError)
                message = "not merged: %s. Tried again in %.0f s."
                log.warning(message, error, MERGE_EVERY_S, exc_info=is_unforeseen)
                self._stopping.wait(MERGE_EVERY_S)
            # The wake of a stop may have been cleared above.
            if not self._stopping.is_set():
                self._woken.wait(MERGE_EVERY_S)
