"""A pause on the seeded site, made as it comes about: a stronger claim on borrowed GPUs."""

import json
import urllib.request
from typing import Any
from uuid import uuid4

from tests.browser.site import Site
from tests.servers.waiting import wait_until

CLASS = "h100"
RUNS_S = 60
NOTICE_S = 60
MINE = {"project": "language-models", "tier": "spot", "request": f"1 {CLASS} 2h"}
# North Lab is guaranteed 2 and uses slices, so that this one more is within its guarantee.
CLAIM = {"project": "climate", "tier": "standard", "request": f"1 {CLASS} 1h"}


def pause_make(site: Site) -> str:
    """Fills the class with borrowers and lets their lender request a GPU.

    Returns the label of the pausing booking.

    Raises:
        AssertionError: no pause was announced in time.
    """
    filled = _post(site, "researcher", MINE | {"name": "screen-sweep"})
    wait_until(lambda: _get(site, filled)["state"] in ("active", "queued"), seconds=RUNS_S)
    _post(site, "other_tenant_researcher", CLAIM | {"name": "storm-run"})
    notified: list[str] = []

    def is_told() -> bool:
        notified[:] = [row["number"] for row in _get(site, "?state=pausing")["items"]]
        return bool(notified)

    wait_until(is_told, seconds=NOTICE_S)
    return notified[0]


def _post(site: Site, role: str, body: dict[str, str]) -> str:
    return f"/{_call(site, role, '', body)['id']}"


def _get(site: Site, path: str) -> dict[str, Any]:
    return _call(site, "researcher", path, None)


def _call(site: Site, role: str, path: str, body: dict[str, str] | None) -> dict[str, Any]:
    asked = urllib.request.Request(  # noqa: S310 (our own site)
        f"{site.url}/api/v1/bookings{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {site.tokens[role]}",
            "Content-Type": "application/json",
            "Idempotency-Key": str(uuid4()),
        },
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 (our own site)
        found: dict[str, Any] = json.load(answer)
    return found
