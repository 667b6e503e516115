"""The hook is asked about a booking that a colleague takes over, and can only admit it as it is."""

import pytest

from allocation.models import Booking
from tests.api.builders import said
from tests.policy_hook.conftest import Hooked
from tests.policy_hook.hook_server import ADMIT
from tests.policy_hook.test_hook import DENY, MOVE
from tests.roles import as_system

pytestmark = pytest.mark.turn


def owner_of(number: str) -> str:
    with as_system():
        return Booking.objects.get(number=int(number.removeprefix("BK-"))).owner.username


def test_the_hook_is_asked_about_who_takes_a_booking_over(hooked: Hooked) -> None:
    number = said(hooked.book())["number"]
    at = f"bookings/{number}/hand-over"
    asked = len(hooked.hook.got)
    assert hooked.site.researcher.post(at, {"person": "jonas"}).status_code == 201
    assert len(hooked.hook.got) == asked, "an offer asks nobody"
    for answer, code in ((DENY, "policy_hook_denied"), (MOVE, "hand_over_hook")):
        hooked.hook.answer = answer
        refused = hooked.site.lead.post(f"{at}/accept")
        assert (refused.status_code, said(refused)["code"]) == (409, code)
        assert owner_of(number) == "mara"
    hooked.hook.answer = ADMIT
    assert said(hooked.site.lead.post(f"{at}/accept"))["state"] == "accepted"
    assert owner_of(number) == "jonas"
    data = hooked.hook.verified(hooked.secret)[-1]["data"]
    assert (data["act"], data["asker"]) == ("hand_over", "jonas")
    (request,) = data["requests"]
    assert request["hand_over"] == {"booking": number, "giver": "mara"}
