"""What the hook makes of changes of bookings: another tier, a narrower window."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from allocation.models import Booking, BookingChange
from allocation.rules.states import State
from allocation.services.snapshot.snapshot import asked_changes_read
from tenants.services.policy_hooks import calls
from tenants.services.policy_hooks.calls import Reply, hook_post
from tests.api.builders import said
from tests.builders_allocation import a_booking
from tests.policy_hook.conftest import Hooked
from tests.roles import as_system

pytestmark = pytest.mark.turn

MOVE: dict[str, Any] = {"decision": "admit", "tier": "spot", "message": "Two are for Spot."}


def changed(hooked: Hooked, label: str, body: object) -> Any:  # noqa: ANN401 (a response)
    send = hooked.site.researcher.send
    return send("PATCH", f"bookings/{label}", body, headers={"if_match": "*"})


def in_hours(hours: float) -> str:
    return (timezone.now().replace(microsecond=0) + timedelta(hours=hours)).isoformat()


def test_a_change_before_its_decision_gets_the_tier_and_the_window(hooked: Hooked) -> None:
    made = said(hooked.book("1 h100 for 20m"))
    headers = {"if_match": "*", "prefer": "dry-run"}
    path, body = f"bookings/{made['number']}", {"request": "2 h100 for 20m"}
    tried = hooked.site.researcher.send("PATCH", path, body, headers=headers)
    assert (said(tried)["asks_hook"], len(hooked.hook.got)) == (True, 1)
    since, until = in_hours(2), in_hours(9)
    hooked.hook.answer = {**MOVE, "window": {"not_before": since, "deadline": until}}
    answer = changed(hooked, made["number"], {"request": "2 h100 for 20m", "tier": "standard"})
    assert answer.status_code == 200, answer.content
    with as_system():
        booking = Booking.objects.get()
        assert (booking.tier_id, booking.ask["count"]) == ("spot", 2)
        bounds = [booking.not_before, booking.deadline]
        assert bounds == [datetime.fromisoformat(since), datetime.fromisoformat(until)]
        event = booking.events.filter(kind="policy_hook", detail__has_key="tier").get()
        assert event.detail["tier"] == "spot"
        assert {"call", "not_before", "deadline"} < event.detail.keys()
    assert hooked.events(made["number"])[-1] == (
        "policy_hook",
        "The policy hook of Helix moved the tier from Standard to Spot and narrowed the window: "
        "“Two are for Spot.”",
    )
    assert hooked.calls()[0]["outcome"] == "changed"
    # What it changes is checked like any other request.
    assert changed(hooked, made["number"], {"request": "9 h100 for 20m"}).status_code in (409, 422)
    for bad, error in (
        ({"not_before": in_hours(1)}, "before the window"),
        ({"deadline": in_hours(10)}, "after the window"),
        ({"deadline": since}, "shorter than"),
    ):
        hooked.hook.answer = {"decision": "admit", "window": bad}
        assert changed(hooked, made["number"], {"count": 3}).status_code == 503
        assert error in hooked.calls()[0]["error"]


def test_what_it_made_of_a_change_is_stored_for_the_decision(hooked: Hooked) -> None:
    site, now = hooked.site, timezone.now().replace(microsecond=0)
    later = now + timedelta(hours=30)
    owner, starts = site.people["researcher"].id, now + timedelta(days=1)
    booking = a_booking(site.project, owner, state=State.SCHEDULED, starts=starts, now=now)
    hooked.hook.answer = {**MOVE, "window": {"not_before": later.isoformat()}}
    answer = changed(hooked, booking.label, {"count": 2})
    assert answer.status_code in (200, 202), answer.content
    with as_system():
        assert Booking.objects.get().tier_id == booking.tier_id
        row = BookingChange.objects.get(state=BookingChange.State.ASKED)
        assert (row.target["tier"], row.target["ask"]["count"]) == ("spot", 2)
        # The snapshot of the decision, and so each replay, has it from there and asks nobody.
        (read,) = asked_changes_read(now)
        assert read.target.tier == "spot"
        assert read.target.earliest == int(later.timestamp())
    assert [each["act"] for each in hooked.hook.questions] == ["change"]


def test_what_another_change_makes_of_it_meanwhile_is_not_admitted(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two changes at once get together what the hook would not admit."""
    number, post = said(hooked.book("1 h100 for 20m"))["number"], hook_post

    def post_while_it_changes(*args: Any, **more: Any) -> Reply:  # noqa: ANN401 (as it is)
        with as_system():
            booking = Booking.objects.get()
            Booking.objects.update(ask={**booking.ask, "count": 4})
        return post(*args, **more)

    monkeypatch.setattr(calls, "hook_post", post_while_it_changes)
    answer = changed(hooked, number, {"duration": "PT40M"})
    assert (answer.status_code, said(answer)["code"]) == (409, "policy_hook_moved")
    with as_system():
        assert Booking.objects.get().duration_seconds == 1200


def test_a_booking_that_has_begun_keeps_its_tier(hooked: Hooked) -> None:
    site, now = hooked.site, timezone.now().replace(microsecond=0)
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now, now=now)
    hooked.hook.answer = MOVE
    assert changed(hooked, booking.label, {"duration": "PT3H"}).status_code == 503
    assert hooked.calls()[0]["error"] == f"{booking.label} has begun, so it keeps its tier."
    hooked.hook.answer = {"decision": "admit", "window": {"deadline": in_hours(1)}}
    assert changed(hooked, booking.label, {"duration": "PT3H"}).status_code == 503
    assert hooked.calls()[0]["error"] == f"{booking.label} has begun, so it has no window any more."
    # The tier that it has is no change.
    hooked.hook.answer = {"decision": "admit", "tier": booking.tier_id}
    assert changed(hooked, booking.label, {"duration": "PT3H"}).status_code in (200, 202)
    hooked.set(is_fail_open=True)
    hooked.hook.answer = MOVE
    assert changed(hooked, booking.label, {"duration": "PT4H"}).status_code in (200, 202)
    kind, text = hooked.events(booking.label)[-1]
    assert kind == "policy_hook"
    assert "gave no valid answer" in text
    with as_system():
        assert Booking.objects.get().tier_id == booking.tier_id


def test_each_date_of_a_series_gets_its_own_tier(hooked: Hooked) -> None:
    until = f"{timezone.now() + timedelta(days=4):%Y-%m-%d}"
    body = {"project": "folding", "tier": "standard"}
    line = f"1 h100 tomorrow 09:00-09:30 every day until {until}"
    series = said(hooked.site.researcher.post("series", {**body, "request": line}))
    others = len(series["dates"]) - 1
    hooked.hook.answer = {"decisions": [MOVE, *[{"decision": "admit"}] * others]}
    path, headers = f"series/{series['id']}?scope=all", {"if_match": "*"}
    answer = hooked.site.researcher.send("PATCH", path, {"count": 2}, headers=headers)
    assert answer.status_code == 200, answer.content
    with as_system():
        rows = Booking.objects.order_by("starts").values_list("tier_id", "ask__count")
        assert list(rows) == [("spot", 2), *[("standard", 2)] * others]
