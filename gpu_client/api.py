"""The REST API as methods. A test compares every path and field with the OpenAPI document."""

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from gpu_client.config import Config
from gpu_client.problems import PortalUnreachable, Problem
from gpu_client.progress import watch_said

Document = dict[str, Any]

# The operations that this client calls, by their ids in the OpenAPI document.
OPERATIONS = {
    "create_device_sign_in": ("POST", "/device/codes"),
    "create_device_token": ("POST", "/device/token"),
    "get_me": ("GET", "/me"),
    "create_quote": ("POST", "/quotes"),
    "create_booking": ("POST", "/bookings"),
    "list_bookings": ("GET", "/bookings"),
    "get_booking": ("GET", "/bookings/{reference}"),
    "get_booking_why": ("GET", "/bookings/{reference}/why"),
    "extend_booking": ("POST", "/bookings/{reference}/extend"),
    "release_booking": ("POST", "/bookings/{reference}/release"),
    "cancel_booking": ("POST", "/bookings/{reference}/cancel"),
    "report_booking_result": ("POST", "/bookings/{reference}/result"),
    "put_booking_progress": ("PUT", "/bookings/{reference}/progress"),
    "start_notebook": ("POST", "/bookings/{reference}/notebook"),
    "get_notebook": ("GET", "/bookings/{reference}/notebook"),
    "delete_notebook": ("DELETE", "/bookings/{reference}/notebook"),
    "get_script": ("GET", "/bookings/{reference}/script"),
    "keep_idle_booking": ("POST", "/bookings/{reference}/still-needed"),
    "list_waiting": ("GET", "/waitlist"),
    "list_offers": ("GET", "/offers"),
    "accept_offer": ("POST", "/offers/{offer_id}/accept"),
    "decline_offer": ("POST", "/offers/{offer_id}/decline"),
    "get_availability": ("GET", "/availability"),
    "list_booking_times": ("GET", "/heatmap"),
    "list_quotas": ("GET", "/quotas"),
    "list_budgets": ("GET", "/budgets"),
    "list_events": ("GET", "/events"),
    "list_kpis": ("GET", "/kpis"),
    "list_workloads": ("GET", "/workloads"),
    "get_workload": ("GET", "/workloads/{slug}"),
    "keep_cluster_jobs": ("POST", "/clusters/{slug}/jobs"),
}
ANSWER_SECONDS = 30.0
# A quiet stream sends a comment every 15 s.
STREAM_SECONDS = 45.0
PAGES_MOST = 50
# A portal that is busy or being restarted is asked again for so long, as late as it says.
REPEAT_SECONDS = 30.0
BUSY = (429, 503)


class Client:
    """A connection to one portal. Methods return the API's JSON; refusals raise Problem."""

    def __init__(self, config: Config, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"User-Agent": "gpu-client/1"}
        if config.token:
            headers["Authorization"] = f"Bearer {config.token}"
        self._rest = httpx.Client(
            base_url=f"{config.url.rstrip('/')}/api/v1",
            headers=headers,
            timeout=ANSWER_SECONDS,
            transport=transport,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rest.close()

    def device_sign_in(self, name: str) -> Document:
        """Begins the sign-in of this machine under `name`; needs no token."""
        return self._call("create_device_sign_in", body={"name": name})

    def device_token(self, device_code: str) -> Document:
        """Returns the token of a sign-in that a person has confirmed; needs no token."""
        return self._call("create_device_token", body={"device_code": device_code})

    def me(self) -> Document:
        """Returns the account behind the token."""
        return self._call("get_me")

    def quote(self, request: Mapping[str, Any]) -> Document:
        """Returns options for a request, best first."""
        return self._call("create_quote", body=request)

    def book(self, request: Mapping[str, Any], wait: int = 10, key: str = "") -> Document:
        """Creates a booking and waits for the decision, for at most `wait` seconds.

        A second call with the same `key` and request returns the first booking.
        """
        return self._call("create_booking", body=request, wait=wait, key=key)

    def bookings(self, **query: str) -> list[Document]:
        """Returns all bookings that `query` asks for."""
        return self._all("list_bookings", query)

    def booking(self, reference: str, wait: int = 0) -> Document:
        """Returns a booking by `BK-2041` or `bk_…`; waits for its decision if there is none."""
        return self._call("get_booking", reference, wait=wait)

    def why(self, reference: str) -> Document:
        """Returns why a booking waits, and what would start it earlier."""
        return self._call("get_booking_why", reference)

    def extend(self, reference: str, by: str) -> Document:
        """Requests a later end; `by` is a duration such as `PT2H`."""
        return self._call("extend_booking", reference, body={"by": by})

    def release(self, reference: str) -> Document:
        """Ends a booking that has started."""
        return self._call("release_booking", reference)

    def cancel(self, reference: str) -> Document:
        """Cancels a booking that has not started."""
        return self._call("cancel_booking", reference)

    def result(self, reference: str, result: str) -> Document:
        """Reports `success` or `failure` of a booking's program."""
        return self._call("report_booking_result", reference, body={"result": result})

    def progress(
        self,
        reference: str,
        step: float,
        of: float | None = None,
        unit: str | None = None,
        metrics: Mapping[str, float] | None = None,
        watch: Mapping[str, str] | None = None,
    ) -> Document:
        """Says how far a booking's program is; returns its rate, expected end and cost of a step, and whether
        the metric in `watch`, such as `{"accuracy": "higher"}`, has stopped getting better."""
        body = {"step": step, "of": of, "unit": unit, "metrics": None if metrics is None else dict(metrics)}
        body |= watch_said(watch)
        return self._call("put_booking_progress", reference, body=body)

    def notebook(self, reference: str, program: str = "") -> Document:
        """Starts the notebook of a running booking, or returns the open one."""
        return self._call("start_notebook", reference, body={"program": program})

    def notebook_read(self, reference: str) -> Document:
        """Returns the newest notebook of a booking."""
        return self._call("get_notebook", reference)

    def notebook_end(self, reference: str) -> None:
        """Ends the notebook of a booking."""
        self._call("delete_notebook", reference)

    def script(self, reference: str) -> Document:
        """Returns the script of a booking, and how it ended."""
        return self._call("get_script", reference)

    def kpis(self, **query: str) -> list[Document]:
        """Returns GPU-hours, use, waits and spend; `query` has from, to, by, step and project."""
        return self._all("list_kpis", query)

    def workloads(self) -> list[Document]:
        """Returns all workloads, with their finished runs by project."""
        return self._all("list_workloads", {})

    def cluster_jobs(
        self, cluster: str, jobs: Sequence[Mapping[str, Any]], engine: str = "slurm"
    ) -> Document:
        """Sends records of another cluster; needs an operator's token."""
        body: dict[str, Any] = {"jobs": jobs}
        if engine != "slurm":
            body["engine"] = engine
        return self._call("keep_cluster_jobs", name=cluster, body=body)

    def workload(self, name: str) -> Document:
        """Returns a workload with its profile, advice, and what came of it."""
        if not _NAME.fullmatch(name):
            raise Problem({"status": 422, "detail": f"{name!r} is not a workload like protein-fold."})
        return self._call("get_workload", name=name)

    def still_needed(self, reference: str) -> Document:
        """Says that the idle GPUs of a booking are still needed."""
        return self._call("keep_idle_booking", reference)

    def waiting(self) -> list[Document]:
        """Returns the entries of the waiting list."""
        return self._all("list_waiting", {})

    def offers(self) -> list[Document]:
        """Returns the offers of places, open and answered ones."""
        return self._all("list_offers", {})

    def offer_accept(self, offer: str) -> Document:
        """Accepts an offer by its id."""
        return self._call("accept_offer", offer)

    def offer_decline(self, offer: str) -> Document:
        """Declines an offer by its id."""
        return self._call("decline_offer", offer)

    def availability(self, gpu_class: str, starts: str, until: str) -> Document:
        """Returns the free GPUs of a class over time; without `starts`, from the portal's now on."""
        query = {"gpu_class": gpu_class, "until": until, **({"from": starts} if starts else {})}
        return self._call("get_availability", query=query)

    def heatmap(self, gpu_class: str) -> list[Document]:
        """Returns the expected wait, price and risk of each hour of the coming week."""
        return self._all("list_booking_times", {"class": gpu_class})

    def quotas(self) -> list[Document]:
        """Returns the quotas of the tenant and its projects."""
        return self._all("list_quotas", {})

    def budgets(self, **query: str) -> list[Document]:
        """Returns the budgets that `query` asks for."""
        return self._all("list_budgets", query)

    @contextmanager
    def events(self, since: str = "") -> Iterator[Iterator[Document]]:
        """Follows the stream of events, from `since` or from now on, until it ends.

        An empty document is a sign of life: it comes every 15 s when nothing happens.
        """
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": since} if since else {})}
        try:
            with self._rest.stream("GET", "/events", headers=headers, timeout=STREAM_SECONDS) as response:
                if response.status_code != 200:
                    response.read()
                    raise _problem(response)
                yield _events(response)
        except httpx.HTTPError as error:
            raise _unreachable(error) from error

    def _all(self, operation: str, query: Mapping[str, str]) -> list[Document]:
        page = self._call(operation, query=query)
        found = list(page["items"])
        for _ in range(PAGES_MOST):
            if page["next"] is None:
                break
            page = self._call(operation, query={**query, "cursor": page["next"]})
            found += page["items"]
        return found

    def _call(  # noqa: PLR0913 (named parts of one call)
        self,
        operation: str,
        reference: str = "",
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        wait: int = 0,
        key: str = "",
        name: str = "",
    ) -> Document:
        """Calls one operation, repeatedly if busy. Raises Problem, PortalUnreachable."""
        method, path = OPERATIONS[operation]
        headers = {"Prefer": f"wait={wait}"} if wait else {}
        if method == "POST":
            # A repetition has no effect twice.
            headers["Idempotency-Key"] = key or str(uuid.uuid4())
        try:
            request = self._rest.build_request(
                method,
                path.format(reference=_quoted(reference), offer_id=_quoted(reference), slug=name),
                params=query,
                json=body,
                headers=headers,
                timeout=ANSWER_SECONDS + wait,
            )
            response = self._repeated(request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(error) from error
        if response.is_error:
            raise _problem(response)
        return {} if response.status_code == httpx.codes.NO_CONTENT else _document(response)

    def _repeated(self, request: httpx.Request) -> httpx.Response:
        """Sends a request until the portal is not busy, for at most REPEAT_SECONDS."""
        until = time.monotonic() + REPEAT_SECONDS
        while True:
            response = self._rest.send(request)
            after = response.headers.get("Retry-After", "")
            if response.status_code not in BUSY or not after.isdecimal():
                return response
            if time.monotonic() + int(after) > until:
                return response
            time.sleep(int(after))


# A number, an element of an array, a booking's id, or the id of an offer.
_REFERENCE = re.compile(r"BK-\d+(\[\d+\])?|bk_[0-9a-f]{1,32}|[0-9a-f-]{1,36}", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def _quoted(reference: str) -> str:
    """Returns the reference as one part of an address."""
    if reference and not _REFERENCE.fullmatch(reference):
        raise Problem({"status": 422, "detail": f"{reference!r} is not a booking like BK-2041."})
    return quote(reference, safe="")


def _events(response: httpx.Response) -> Iterator[Document]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
        elif line.startswith(":"):
            yield {}


def _document(response: httpx.Response) -> Document:
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise PortalUnreachable(f"{response.url.host} answered, but it is not a GPU portal.")
    return document


def _problem(response: httpx.Response) -> Exception:
    try:
        return Problem({"status": response.status_code, **_document(response)})
    except PortalUnreachable as error:
        return error


def _unreachable(error: Exception) -> PortalUnreachable:
    if isinstance(error, httpx.TimeoutException):
        return PortalUnreachable("The portal did not answer in time.")
    return PortalUnreachable(f"The portal can't be reached: {str(error) or type(error).__name__}")
