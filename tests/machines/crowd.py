"""People who book at a steady rate through two webs, as a balancer passes them on."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self
from uuid import uuid4

import httpx

LOOK_SECONDS, WAIT_SECONDS, ANSWER_SECONDS, GIVE_UP_SECONDS = 1.0, 3, 6.0, 120.0
# Answers that say nothing of the request: another attempt may meet another web.
AGAIN = {408, 429, 500, 502, 503, 504}


@dataclass
class Request:
    """A booking that somebody asks for: what was seen, in seconds of a clock that never jumps."""

    name: str
    asked: float
    number: str = ""
    decided: float = 0.0
    active: float = 0.0
    refused: str = ""


@dataclass
class Crowd:
    """Books `rate` times a second in a thread of its own, waits for each decision and cancels."""

    webs: Sequence[str]
    token: str
    body: Mapping[str, object]
    rate: float = 8.0
    # One in so many is not cancelled before it runs; 0: there is no node on which it could.
    runs: int = 0
    requests: list[Request] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._book_always()))
        self._turns = itertools.count()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the bookings, and waits for what is under way."""
        self._stop.set()
        self._thread.join()

    def decided_since(self, moment: float) -> float | None:
        """Seconds until the first decision of what was asked for after the moment."""
        found = [each.decided for each in list(self.requests) if each.asked >= moment and each.decided]
        return min(found) - moment if found else None

    def is_served(self) -> bool:
        """Whether somebody got a decision just now."""
        decided = max((each.decided for each in list(self.requests)), default=0.0)
        return bool(decided) and time.monotonic() - decided < LOOK_SECONDS

    def active_since(self, moment: float) -> float | None:
        """Seconds until the first of these runs."""
        found = [each.active for each in list(self.requests) if each.asked >= moment and each.active]
        return min(found) - moment if found else None

    async def _book_always(self) -> None:
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            httpx.AsyncClient(headers=headers, timeout=ANSWER_SECONDS, limits=limits) as client,
            asyncio.TaskGroup() as people,
        ):
            began = time.monotonic()
            for number in itertools.count():
                await asyncio.sleep(max(0.0, began + number / self.rate - time.monotonic()))
                if self._stop.is_set():
                    return
                request = Request(f"load-{number}", time.monotonic())
                self.requests.append(request)
                runs = bool(self.runs) and number % self.runs == 0
                people.create_task(self._one(client, request, runs=runs))

    async def _one(self, client: httpx.AsyncClient, request: Request, *, runs: bool) -> None:
        body = {**self.body, "name": request.name}
        made = await self._sent(client, request, "POST", "/bookings", body)
        if made is None or made.status_code != 201:
            request.refused = "no answer" if made is None else f"{made.status_code} {made.text[:200]}"
            return
        request.number = made.json()["number"]
        self._note(request, made)
        path = f"/bookings/{request.number}"
        while not (request.refused or request.active or (request.decided and not runs)):
            if time.monotonic() - request.asked > GIVE_UP_SECONDS:
                break
            await asyncio.sleep(LOOK_SECONDS)
            self._note(request, await self._sent(client, request, "GET", path, None))
        for end in ("release",) if request.active else ("cancel", "release"):
            answer = await self._sent(client, request, "POST", f"{path}/{end}", {})
            if answer is not None and answer.is_success:
                return

    def _note(self, request: Request, seen: httpx.Response | None) -> None:
        if seen is not None and seen.status_code == 404:
            request.refused = "lost"
        if seen is None or not seen.is_success:
            return
        state = seen.json()["state"]
        if state != "requested" and not request.decided:
            request.decided = time.monotonic()
        if state == "active":
            request.active = time.monotonic()

    async def _sent(
        self, client: httpx.AsyncClient, request: Request, method: str, path: str, body: object
    ) -> httpx.Response | None:
        """The answer of the first web that gives one; None: none did in time."""
        headers = {"Idempotency-Key": str(uuid4())} if method == "POST" else {}
        if path == "/bookings":
            headers["Prefer"] = f"wait={WAIT_SECONDS}"
        while time.monotonic() - request.asked < GIVE_UP_SECONDS:
            web = self.webs[next(self._turns) % len(self.webs)]
            try:
                answer = await client.request(method, f"{web}/api/v1{path}", json=body, headers=headers)
            except httpx.TransportError as error:
                self.errors[type(error).__name__] += 1
            else:
                is_busy = answer.status_code == 409 and "in_flight" in answer.text
                if answer.status_code not in AGAIN and not is_busy:
                    return answer
                self.errors[str(answer.status_code)] += 1
            await asyncio.sleep(0.1)
        return None
