"""Signing in at a real process: its server program must not believe a header either."""

import httpx
from django.utils import timezone

from portal.web.limits import ADDRESS, Attempt, sign_in_try


def test_a_rotated_header_from_this_machine_is_still_one_address(live_portal: str) -> None:
    for each in range(ADDRESS.free):
        assert sign_in_try(Attempt(f"name-{each}", "127.0.0.1"), timezone.now()) == 0
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
