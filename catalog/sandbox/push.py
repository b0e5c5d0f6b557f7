"""Push of a sandbox: endpoints that are registered at its start, and the faults of deliveries.

Belongs here: what only a sandbox does to deliveries. Does not: sending them (server/webhooks), how
faults are written (faults.py).
"""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from catalog.contract.decisions import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import ELITE
from catalog.sandbox.faults import FaultBoard
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.delivery import AttemptOutcome, Poster
from catalog.server.webhooks.endpoints import Endpoint

ACCOUNT: Final = "sandbox"
"""The account on Elite that owns the endpoints registered here."""
_SHUFFLED_WITHIN: Final = timedelta(hours=1)


def register(
    folder: ServiceDir,
    url: str,
    *,
    secret: str | None = None,
    signature: SignatureForm = SIGNATURE_FORMS[0],
    account: str = ACCOUNT,
) -> tuple[Endpoint, str]:
    """Return the enabled endpoint of an account at a URL, and its secret; made if there is none.

    The account is made on Elite. A `secret` of the caller's replaces another one at once.

    Raises:
        EndpointError: the account is on a plan without push, or the secret can't be one.
        TargetRefused: webhooks are not sent to this URL.
        JsonFileError: a file of the folder can't be read.
    """
    accounts, book = folder.key_book(), folder.endpoint_book()
    if account not in accounts.plans():
        accounts.create(account, ELITE)
    for known in book.endpoints():
        if (known.account, known.url) == (account, url):
            newest = known.secrets[0].value
            if secret not in (None, newest):
                newest = book.rotate(known.id, overlap_hours=0, secret=secret)
            book.sign_as(known.id, signature)
            book.enable(known.id)
            return book.get(known.id), newest
    return book.add(url, account=account, allow_private=True, signature=signature, secret=secret)


class FaultyPush:
    """Posts deliveries, and says when new ones are due, with the faults that are on."""

    def __init__(self, faults: FaultBoard, tls: ssl.SSLContext | None = None) -> None:
        self._faults = faults
        self._poster = Poster(tls=tls)
        self._random = Random(0).random

    def due(self) -> datetime:
        """Return when a new delivery is due: now, or when shuffled at a random time before."""
        now = datetime.now(UTC)
        if self._faults.draw("", among=("push_shuffled",)):
            return now - _SHUFFLED_WITHIN * self._random()
        return now

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        drawn = self._faults.draw(url, among=("push_twice", "push_unanswered"))
        names = [fault.name for fault in drawn]
        # At the same time, which is the harder case for a receiver.
        first, *_ = await asyncio.gather(
            *(
                self._poster.post(url, allow_private=allow_private, body=body, headers=headers)
                for _ in range(2 if "push_twice" in names else 1)
            )
        )
        if "push_unanswered" in names:
            return AttemptOutcome(None, "the answer was lost: fault push_unanswered")
        return first
