"""A site whose organisation has a policy hook on loopback."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest
from pytest_django import Settings

if TYPE_CHECKING:
    from django.http import HttpResponse

    from tests.api.builders import Site
    from tests.policy_hook.hook_server import Hook


@dataclass
class Hooked:
    """The site and its hook."""

    site: "Site"
    hook: "Hook"
    secret: str = ""

    def set(self, **more: object) -> dict[str, Any]:
        """Sets the hook, as an admin."""
        from tests.api.builders import said  # noqa: PLC0415 (settings are not there on import)

        body = {"url": self.hook.url, "timeout_ms": 1000, **more}
        answer = self.site.admin.put("policy-hook", body)
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = said(answer)
        self.secret = found["secret"] or self.secret
        return found

    def calls(self) -> list[dict[str, Any]]:
        """The log, the latest first."""
        from tests.api.builders import said  # noqa: PLC0415

        items: list[dict[str, Any]] = said(self.site.admin.get("policy-hook/calls"))["items"]
        return items

    def book(self, line: str = "1 h100 for 10m", **more: Any) -> "HttpResponse":  # noqa: ANN401
        """A researcher's request."""
        key = {"idempotency_key": more.pop("key")} if "key" in more else {}
        body = {"project": "folding", "tier": "standard", "request": line, **more}
        return self.site.researcher.post("bookings", body, **key)

    def events(self, number: str) -> list[tuple[str, str]]:
        """The history of a booking: kinds and sentences."""
        from allocation.models import BookingEvent  # noqa: PLC0415
        from tests.roles import as_system  # noqa: PLC0415

        with as_system():
            rows = BookingEvent.objects.filter(booking__number=int(number.removeprefix("BK-")))
            return [(row.kind, row.text) for row in rows]


@pytest.fixture
def hooked(db: None, settings: Settings) -> Iterator[Hooked]:
    """A hook that is on, refuses without an answer, and admits everything."""
    from tests.api.builders import a_site  # noqa: PLC0415 (settings are not there on import)
    from tests.policy_hook.hook_server import a_hook  # noqa: PLC0415

    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_hook() as hook:
        found = Hooked(a_site(), hook)
        found.set()
        yield found
