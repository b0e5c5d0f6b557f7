"""The transport of the sandbox's sender: records each attempt, and kills the receiver between.

Belongs here: one attempt, as short as it can be, so that nearly all of its time is the receiver's.
Does not: what is sent when, to whom, how often and how signed, which is the sandbox's own.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from urllib.parse import urlsplit

from catalog.server.webhooks.delivery import AttemptOutcome
from tests.hangs import HANGS_AFTER_S, wait_for


@dataclass(slots=True)
class Post:
    """One attempt. Instants are of the monotonic clock; `sent` is None without a connection."""

    delivery_id: str
    body: bytes
    sent: float | None = None
    ended: float | None = None
    status: int | None = None

    @property
    def acknowledged(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    def was_cut(self, killed_at: float) -> bool:
        """Whether a kill of the receiver cut it: it was sent before, and got no answer."""
        if self.sent is None or self.ended is None:
            return False
        return self.sent < killed_at <= self.ended and self.status is None


class RecordingPoster:
    """Posts for a sandbox, records each attempt in `posts`, and kills a process on request."""

    def __init__(self, chance: random.Random) -> None:
        self.posts: list[Post] = []
        self._chance = chance
        self._victim: int | None = None
        self._after = 0
        self._killed = Event()
        self._killed_at = 0.0

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        post = Post(json.loads(body)["id"], body)
        self.posts.append(post)
        error = None
        try:
            async with asyncio.timeout(HANGS_AFTER_S):
                await self._post(post, url, headers)
        except (OSError, TimeoutError) as raised:
            error = f"{type(raised).__name__}: {raised}"
        post.ended = time.monotonic()
        return AttemptOutcome(post.status, error)

    async def _post(self, post: Post, url: str, headers: Mapping[str, str]) -> None:
        target = urlsplit(url)
        given = {**headers, "Host": target.netloc, "Content-Length": str(len(post.body))}
        lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {given[name]}" for name in given)]
        head = "\r\n".join([*lines, "Connection: close", "", ""]).encode()
        reader, writer = await asyncio.open_connection(target.hostname, target.port)
        try:
            writer.write(head + post.body)
            await writer.drain()
            post.sent = time.monotonic()
            self._strike_soon()
            answer = await reader.read()
            if answer:
                post.status = int(answer.split()[1])
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def acknowledged(self) -> set[str]:
        return {post.delivery_id for post in self.posts if post.acknowledged}

    def arm(self, pid: int, *, after: int) -> None:
        """Kill a process when `after` attempts more were sent, and the next one is in flight."""
        self._killed.clear()
        self._after, self._victim = after, pid

    def wait_until_killed(self) -> float:
        """Return when the process was killed, once the attempts of that instant have ended."""
        assert self._killed.wait(HANGS_AFTER_S), "nothing was sent"
        wait_for(lambda: all(post.ended or not post.sent for post in self.posts[-256:]))
        return self._killed_at

    def _strike_soon(self) -> None:
        """Strike from the sender's loop: another thread gets its turn when nothing is sent."""
        self._after -= 1
        if self._victim is not None and self._after < 0:
            pid, self._victim = self._victim, None
            wait_s = self._chance.choice((0, 0.0005, 0.001, 0.002, 0.004))
            asyncio.get_running_loop().call_later(wait_s, self._strike, pid)

    def _strike(self, pid: int) -> None:
        self._killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self._killed.set()
