"""Operators read what an act ends and moves before it is done, and that is what it then does."""

import re
from datetime import timedelta
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import (
    Allocation,
    Booking,
    Gpu,
    MachineClock,
    Node,
    Occupancy,
    PolicyVersion,
)
from allocation.rules.states import State
from allocation.services.policy.differences import policy_text
from allocation.services.policy.names import LABELS
from allocation.services.policy.policies import policy_read, policy_values
from allocation.services.runs.interrupt import hardware_vacate
from allocation.web.site.policy_questions import ASKED, ORDER_WORDS, PAUSE_WORDS, PRESETS
from solver.model.policy import ORDER_KEYS, VICTIM_RULES
from tests.api.builders import Site, a_site
from tests.builders_allocation import HOUR, a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
NODE = "gpu-a1-01"
FLEET = f"/ops/fleet/{NODE}"


@pytest.fixture
def site() -> Site:
    """Two runs, for two hours and for six; a start in half an hour, one tomorrow."""
    site, now = a_site(), timezone.now().replace(microsecond=0)
    gpus = list(Gpu.objects.order_by("index"))
    project, mara = site.project, site.people["researcher"].id
    for index, hours in enumerate((3, 7)):
        began = now - HOUR
        run = a_booking(project, mara, state=State.ACTIVE, hours=hours, starts=began, now=began)
        an_allocation(
            run,
            gpus[index],
            starts=began,
            ends=began + hours * HOUR,
            state=Allocation.State.ACTIVE,
        )
    for index, ahead in enumerate((timedelta(minutes=30), timedelta(days=1)), 2):
        starts = now + ahead
        planned = a_booking(project, mara, state=State.SCHEDULED, starts=starts, now=now)
        an_allocation(planned, gpus[index], starts=starts, ends=starts + 2 * HOUR)
    return site


@pytest.fixture
def operator(site: Site) -> Client:
    client = Client()
    client.force_login(site.people["operator"])
    return client


def _asked(client: Client, path: str, **form: str) -> str:
    """The text of the question, which nothing was done for."""
    with as_system():
        before = (Node.objects.get().state, list(Booking.objects.values_list("id", "state")))
    answer = client.post(path, form)
    assert answer.status_code == 200
    with as_system():
        assert (
            Node.objects.get().state,
            list(Booking.objects.values_list("id", "state")),
        ) == before
    body = answer.content.decode().partition("<main")[2]
    assert body.count('name="sure" value="1"') == 1
    for name, value in form.items():
        assert f'name="{name}" value="{value}"' in body
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def _states() -> list[str]:
    with as_system():
        return list(Booking.objects.order_by("number").values_list("state", flat=True))


def test_a_drain_without_a_deadline_ends_nobody(operator: Client) -> None:
    said = _asked(operator, f"{FLEET}/drain", reason="fans")
    assert "2 runs continue until they end" in said
    assert "1 start within the next hour" in said
    assert "1 later start" in said
    assert "Drain gpu-a1-01, move 1 start" in said
    operator.post(f"{FLEET}/drain", {"reason": "fans", "sure": "1"})
    with as_system():
        hardware_vacate(timezone.now())
        # The one within the hour has lost its place, the later one keeps it.
        assert Allocation.objects.filter(state=Allocation.State.PLANNED).count() == 1
    assert _states()[:2] == [State.ACTIVE, State.ACTIVE]


def test_a_drain_with_a_deadline_says_whom_it_breaks_off(operator: Client) -> None:
    by = (timezone.now() + 3 * HOUR).astimezone(ZoneInfo("Europe/Berlin"))
    form = {"reason": "fans", "by": f"{by:%Y-%m-%dT%H:%M}"}
    said = _asked(operator, f"{FLEET}/drain", **form)
    assert "1 run continue " not in said
    assert "1 run continues until it ends" in said
    assert "1 run is interrupted" in said
    assert "Drain gpu-a1-01, move 1 start, interrupt 1 run" in said
    operator.post(f"{FLEET}/drain", form | {"sure": "1"})
    with as_system():
        hardware_vacate(by - 2 * HOUR)
    assert _states()[:2] == [State.ACTIVE, State.ACTIVE]
    with as_system():
        hardware_vacate(by + timedelta(minutes=1))
    assert _states()[1] == State.QUEUED


def test_an_empty_node_is_drained_without_a_question(site: Site, operator: Client) -> None:
    with as_owner():
        Occupancy.objects.all().delete()
        Allocation.objects.all().delete()
    assert operator.post(f"{FLEET}/drain", {"reason": "fans"}).status_code == 302
    with as_system():
        assert Node.objects.get().state == Node.State.DRAINING


def test_a_fence_says_how_many_runs_it_ends_and_ends_them(operator: Client) -> None:
    with as_system():
        Node.objects.update(state=Node.State.DRAINING)
    said = _asked(operator, f"{FLEET}/fence", note="unplugged")
    assert "2 runs of 1 organisation will end at once" in said
    assert "Confirm powered off, end 2 runs" in said
    operator.post(f"{FLEET}/fence", {"note": "unplugged", "sure": "1"})
    assert _states()[:2] == [State.QUEUED, State.QUEUED]
    one = _asked(operator, f"{FLEET}/fence", note="unplugged", gpu="5")
    assert "GPU 5 of gpu-a1-01 powered off? The portal has no record" in one


def test_what_is_refused_is_refused_before_any_question(operator: Client) -> None:
    assert operator.post(f"{FLEET}/fence", {"note": "unplugged"}).status_code == 409
    assert operator.post(f"{FLEET}/revoke").status_code == 409
    past = {"reason": "x", "by": "2026-01-01T00:00"}
    assert operator.post(f"{FLEET}/drain", past).status_code == 422


def test_a_lock_out_says_what_nobody_can_stop_any_more(operator: Client) -> None:
    with as_system():
        Node.objects.update(link_digest=b"d" * 32)
    said = _asked(operator, f"{FLEET}/revoke")
    assert "Revoke access of gpu-a1-01, 2 runs without control" in said


def test_a_clock_in_doubt_is_accepted_with_the_runs_that_end_by_it(operator: Client) -> None:
    with as_system():
        day = timedelta(days=1)
        MachineClock.objects.create(machine="portal", clock_offset=day, jump=day)
    # None is over by the clock as it is.
    assert operator.post("/ops/clock").status_code == 302
    with as_system():
        MachineClock.objects.update(jump=timedelta(days=1))
        now = timezone.now()
        Allocation.objects.filter(state=Allocation.State.ACTIVE).update(period=(now - 2 * HOUR, now - HOUR))
    assert "end 2 runs" in _asked(operator, "/ops/clock")


def test_a_pin_says_how_many_planned_bookings_move(operator: Client) -> None:
    said = _asked(operator, f"{FLEET}/3/mode", mode="sliced", note="")
    assert "Pin to slices, move 1 booking" in said
    assert operator.post(f"{FLEET}/3/mode", {"mode": "whole"}).status_code == 302


def _policy_form(**values: str) -> dict[str, str]:
    known = {name: policy_text(name, value) for name, value in policy_values({}).items()}
    assert known.keys() == LABELS.keys()
    return known | values


def test_a_policy_is_drafted_when_its_differences_were_read(operator: Client) -> None:
    form = _policy_form(cool_down="45m", share_owners="2")
    said = _asked(operator, "/ops/policy", **form)
    assert "Cool-down after a pause: 30m to 45m" in said
    assert "Owners per shared GPU: 1 to 2" in said
    assert "no start would move" in said
    assert "Draft a version, change 2 values" in said
    done = operator.post("/ops/policy", form | {"sure": "1"}, follow=True).content.decode()
    assert "Policy version 2 drafted" in done
    with as_system():
        draft = PolicyVersion.objects.get(number=2)
    assert draft.document == {"cool_down": 2700, "share_owners": 2}
    address = "/ops/policy/versions/2"
    done = operator.post(address, {"act": "activate", "waiver": "I am alone."}, follow=True).content.decode()
    assert "Version 2 is in force" in done
    # Back to the defaults: what is the default does not stand in the document.
    operator.post("/ops/policy", _policy_form() | {"sure": "1"})
    with as_system():
        assert PolicyVersion.objects.get(number=3).document == {}


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("grid", "often", "Enter a duration"),
        ("grid", "2d", "Enter a value from 1s to 1d."),
        ("share_owners", "1.5", "Enter a whole number."),
        ("unbooked_end_after", "1m", "unbooked_end_after needs unbooked_warn_after"),
        ("cool_down", "30m", "These values are those of the version in force."),
    ],
)
def test_a_bad_policy_is_refused_with_what_was_typed(
    operator: Client, field: str, text: str, sentence: str
) -> None:
    answer = operator.post("/ops/policy", _policy_form(**{field: text}))
    body = flat(unescape(answer.content.decode()))
    assert answer.status_code == 422
    assert sentence in body
    assert f'id="p-{field}" name="{field}" value="{text}"' in body


def test_presets_fill_in_the_form_and_the_order_moves_by_buttons(operator: Client) -> None:
    page = flat(unescape(operator.get("/ops/policy?preset=teaching").content.decode()))
    assert 'name="share_owners" value="8"' in page
    assert "8 values differ from version" in page
    with as_system():
        assert not PolicyVersion.objects.filter(number=2).exists(), "a preset is only typed"
    form: dict[str, object] = dict(_policy_form(grid="10m"))
    keys = form["order"] = str(form["order"]).split(", ")
    form["victim_rules"] = []
    moved = operator.post("/ops/policy", form | {"move": f"{keys[5]} up"})
    found = re.findall(r'name="order" value="([a-z]+)"', flat(moved.content.decode()))
    assert (moved.status_code, found) == (200, [*keys[:4], keys[5], keys[4]])
    assert 'value="10m"' in moved.content.decode(), "what was typed stays"
    same = operator.post("/ops/policy", form | {"move": f"{keys[0]} up"})
    assert re.findall(r'name="order" value="([a-z]+)"', flat(same.content.decode())) == keys
    asked = operator.post("/ops/policy", form | {"order": found}).content.decode()
    assert re.findall(r'name="order" value="([a-z]+)"', flat(asked)) == found
    operator.post("/ops/policy", form | {"order": found, "sure": "1"})
    with as_system():
        document = PolicyVersion.objects.get(number=2).document
    assert (document["order"], document["victim_rules"]) == (found, [])


def test_presets_are_policies_and_questions_ask_what_there_is() -> None:
    for preset in PRESETS:
        policy_read(dict(preset.document), 0)
    assert LABELS.keys() >= ASKED
    assert (tuple(ORDER_WORDS), tuple(PAUSE_WORDS)) == (ORDER_KEYS, VICTIM_RULES)
