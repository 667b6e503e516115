"""Signing in at a real process: its server program must not believe a header either."""

import httpx
from django.core.cache import cache

from portal.web.accounts.limits import ADDRESS, Attempt


def test_a_rotated_header_from_this_machine_is_still_one_address(live_portal: str) -> None:
    # So many before that the next try opens the longest pause: a slow machine is no reason to fail.
    _, (key, _) = Attempt("", "127.0.0.1").limits
    cache.set(f"tries:{key}", ADDRESS.free + 10)
    token = "x" * 32
    with httpx.Client(
        base_url=live_portal, cookies={"portal-csrf": token}, headers={"X-CSRFToken": token}
    ) as client:
        answers = [
            client.post(
                "/sign-in",
                data={"username": f"somebody-{each}", "password": "x"},
                headers={"X-Forwarded-For": f"10.0.0.{each}", "Origin": live_portal},
            ).status_code
            for each in range(2)
        ]
    assert answers == [401, 429]
