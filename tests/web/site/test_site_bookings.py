"""The operators' list of all tenants' bookings, as a page and over REST, and their messages."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import Sum
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.models import Booking, BookingEvent, Gpu
from billing.models import Transfer
from billing.rules import money_text
from portal.integrations.mail.message import section_of
from portal.integrations.notifications.delivery import people_notify
from tenants.models import AuditEntry, Mail, Membership, OutboxMessage, Quota, Tenant, User
from tests.api.builders import Site, a_site, said
from tests.builders_allocation import Lab, a_booking, a_lab, an_allocation
from tests.figures.shown import figures_of
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
PAGE = "/ops/bookings"
MESSAGE = "Please release h100s by noon."


@dataclass(frozen=True)
class Two:
    """A site with two tenants and a booking of each; the second has a booking that is over."""

    site: Site
    other: Lab
    own: Booking
    foreign: Booking
    over: Booking
    operator: Client


@pytest.fixture
def two() -> Two:
    site = a_site()
    with as_system():
        other = a_lab("north", gpus=0)
    own = a_booking(site.project, site.people["researcher"].id, state="active")
    foreign = a_booking(other.project, other.actor.user_id, state="queued")
    over = a_booking(other.project, other.actor.user_id, state="ended")
    operator = Client()
    operator.force_login(site.people["operator"])
    return Two(site, other, own, foreign, over, operator)


def listed(two: Two, query: str = "") -> set[str]:
    answer = two.operator.get(PAGE + query)
    assert answer.status_code == 200
    return {str(row["booking"].id) for row in answer.context["rows"]}


def test_open_bookings_of_all_tenants_are_found_by_each_filter(two: Two) -> None:
    own, foreign, over = (str(each.id) for each in (two.own, two.foreign, two.over))
    assert listed(two) == {own, foreign}
    assert listed(two, "?tenant=north") == {foreign}
    assert listed(two, "?state=running") == {own}
    assert listed(two, f"?q=bk-{two.foreign.number}%20{two.other.project.name}") == {foreign}
    assert listed(two, "?tier=no-such-tier&class=x%00&node=?&page=x&state=?") == set()
    assert listed(two, "?state=over&tenant=north") == {over}
    asked = two.operator.get(f"{PAGE}?state=over")
    assert "Choose an organisation" in asked.content.decode()
    member = Client()
    member.force_login(two.site.people["admin"])
    assert member.get(PAGE).status_code == 404


def test_the_timeline_has_bookings_of_all_tenants_by_name_and_hides_others_of_a_filter(
    two: Two,
) -> None:
    with as_system():
        gpu = Gpu.objects.all()[0]
        now = timezone.now().replace(microsecond=0)
        hour = timedelta(hours=1)
        an_allocation(two.own, gpu, starts=now - hour, ends=now + hour)
        place = {"gpu": str(gpu.id), "start": 0, "size": 8, "profile": None}
        Booking.objects.filter(id=two.foreign.id).update(
            planned_starts=now + 2 * hour, planned_ends=now + 3 * hour, planned_places=[place]
        )
    shown = two.operator.get("/ops/timeline").content.decode()
    tenant = two.other.project.tenant
    own, foreign = (
        f'href="/ops/bookings?tenant={slug}&amp;q={each.label}"'
        for each, slug in ((two.own, "helix"), (two.foreign, tenant.slug))
    )
    assert own in shown
    assert foreign in shown
    assert f"{tenant.name} · {two.other.project.name}" in shown
    assert "data-fixed" in shown
    # Each organisation has a colour of its own, with its name in the legend.
    names = (("org-1", two.own.project.tenant.name), ("org-2", tenant.name))
    assert all(f'<i class="k-org {css}"></i>{name}' in shown for css, name in names)
    assert re.search(r'class="bar [^"]*\borg-2"', shown)
    one = two.operator.get("/ops/timeline?tenant=north").content.decode()
    assert own not in one
    assert "busy, someone else&#x27;s booking" in one
    assert foreign in one
    # What is filtered out still takes its GPU.
    table = two.operator.get("/ops/timeline?view=list&tier=no-such").content.decode()
    assert "No bookings in this period" in table
    assert "/book?q=" not in table
    part = two.operator.get("/ops/timeline?part=grid&class=none&from=x&span=x").content.decode()
    assert "<html" not in part
    member = Client()
    member.force_login(two.site.people["admin"])
    assert member.get("/ops/timeline").status_code == 404


def _three_guaranteed(tenant: Tenant) -> Quota:
    with as_system():
        quota = Quota.objects.get(tenant=tenant, project=None, gpu_class="h100")
        quota.guaranteed_units = 3 * 56_000
        quota.save()
    return quota


def _fleet_of(lab: Lab) -> str:
    """The fleet page of a tenant."""
    with as_system():
        person = User.objects.get(id=lab.actor.user_id)
    client = Client()
    client.force_login(person)
    return client.get(f"/t/{lab.tenant.slug}/fleet").content.decode()


def test_operators_see_what_each_tenant_has_and_uses(two: Two) -> None:
    tenant, now = two.other.project.tenant, timezone.now()
    _three_guaranteed(tenant)
    with as_system():
        hour = timedelta(hours=1)
        whole, sliced, *_ = Gpu.objects.all()
        an_allocation(two.foreign, whole, starts=now - hour, ends=now + hour)
        an_allocation(two.foreign, sliced, profile="1g.10gb", starts=now - hour, ends=now + hour)
        AuditEntry.objects.create(
            tenant=tenant,
            at=now + hour,
            actor_id=two.foreign.owner_id,
            action="booking.request",
            object_kind="booking",
            object_id="1",
        )
        AuditEntry.objects.create(
            tenant=tenant, at=now + 2 * hour, action="node.lost", object_kind="node", object_id="1"
        )
    answer = two.site.operator.get("fleet/tenants")
    (row,) = [each for each in said(answer)["items"] if each["slug"] == tenant.slug]
    own = two.other.project.tenant
    assert (row["gpus_guaranteed"], row["gpus_used"], row["is_open"]) == (3, 1.143, True)
    # An eighth of the memory, and a seventh of a GPU in quotas: pages say the same.
    fleet = _fleet_of(two.other)
    assert figures_of(fleet)["in-use", "", ""] == "1.143"
    assert "by memory, of all organisations; your quotas count" in flat(fleet)
    with as_system():
        held = Transfer.objects.filter(tenant=own, kind="hold", end=None)
        total = held.aggregate(sum=Sum("amount"))["sum"]
        people = Membership.objects.filter(tenant=own).values("user").distinct().count()
    assert (Decimal(row["held"]), row["people"]) == (total, people)
    assert datetime.fromisoformat(row["last_activity"]) == now + hour
    assert two.site.researcher.get("fleet/tenants").status_code == 403
    page = two.operator.get("/ops/tenants").content.decode()
    assert "1.143 of 3 guaranteed" in page
    assert f'<span data-figure="held">{money_text(total, "EUR")}</span> held, all months' in page
    quotas = two.operator.get("/ops/quotas").content.decode()
    assert re.search(r'data-figure="in-use"[^>]*data-value="1.143">', quotas)


def test_a_quota_that_is_in_use_is_lowered_only_after_a_question(two: Two) -> None:
    tenant, now = two.other.project.tenant, timezone.now()
    quota = _three_guaranteed(tenant)
    with as_system():
        hour = timedelta(hours=1)
        an_allocation(two.foreign, Gpu.objects.all()[0], starts=now - hour, ends=now + hour)

    def form(guaranteed: str, borrow: str) -> dict[str, str]:
        row = f"h100:{tenant.id}"
        return {"act": "save", f"guaranteed:{row}": guaranteed, f"borrow:{row}": borrow}

    less = form("0", "0.5")
    asked = two.operator.post("/ops/quotas", less)
    said = " ".join(unescape(asked.content.decode()).split())
    assert "The guarantee falls from 3 to 0 GPUs. Of 1 in use, 1 more would be borrowed" in said
    assert "At most 0.5 GPUs at once; before: at most 3 GPUs at once. In use now: 1 GPU." in said
    assert "Above it: " in said
    assert [f'value="{each}"' in said for each in ("keep", "drain", "pause")] == [True] * 3
    with as_system():
        quota.refresh_from_db()
    assert quota.guaranteed_units == 3 * 56_000
    assert two.operator.post("/ops/quotas", form("4", "")).status_code == 302
    assert two.operator.post("/ops/quotas", less | {"sure": "1"}).status_code == 302
    with as_system():
        quota.refresh_from_db()
    assert quota.guaranteed_units == 0


def test_a_message_reaches_the_owners_of_open_bookings_once(two: Two, settings: Settings) -> None:
    settings.MAIL_ON = True
    chosen = [str(each.id) for each in (two.own, two.foreign, two.over)]
    form = {"act": "message", "booking": chosen, "text": MESSAGE}
    faults: tuple[dict[str, Any], ...] = (
        {"text": " "},
        {"text": "x" * 201},
        {"booking": []},
        {"booking": [str(uuid4())]},
        {"booking": [str(uuid4()) for _ in range(201)]},
    )
    for bad in faults:
        refused = two.operator.post(PAGE, form | bad)
        assert refused.status_code == 422
    assert f'value="{chosen[0]}"' in two.operator.post(PAGE, form | {"text": ""}).content.decode()
    assert two.operator.post(PAGE, form | {"booking": "x"}).status_code == 404
    asked = two.operator.post(PAGE, form).content.decode()
    assert "Send the message to the owners?" in asked
    assert "It is over." in asked
    with as_system():
        assert not BookingEvent.objects.filter(kind="message").exists()
    sent = two.operator.post(PAGE, form | {"sure": "1"})
    assert "about 2 bookings" in sent.content.decode()
    assert "It is over." in sent.content.decode()
    with as_system():
        events = BookingEvent.objects.filter(kind="message")
        assert {each.booking_id for each in events} == {two.own.id, two.foreign.id}
        assert all(each.text.endswith(MESSAGE) for each in events)
        entries = AuditEntry.objects.filter(action="booking.message_sent")
        tenants = {two.site.tenant.id, two.other.tenant_id}
        assert {each.tenant_id for each in entries} == {None, *tenants}
        with as_owner():
            User.objects.update(email="someone@example.org")
        now = timezone.now()
        people_notify(list(OutboxMessage.objects.filter(kind="booking.message")), now)
        letters = [section_of(each, now) for each in Mail.objects.filter(kind="booking.message")]
    assert len(letters) == 2
    assert all(each and MESSAGE in " ".join(each.sentences) for each in letters)


def test_rest_lists_them_for_operators_only(two: Two) -> None:
    address = "/api/v1/fleet/bookings"

    def asked(token: str | None, query: str = "") -> tuple[int, dict[str, Any]]:
        answer = Client().get(address + query, headers={"authorization": f"Bearer {token}"})
        return answer.status_code, answer.json()

    operator = two.site.operator.token
    status, first = asked(operator, "?limit=1")
    assert (status, len(first["items"])) == (200, 1)
    status, second = asked(operator, f"?limit=1&cursor={first['next']}")
    found = {each["tenant"] for each in (*first["items"], *second["items"])}
    assert (status, found, second["next"]) == (200, {two.site.tenant.slug, "north"}, None)
    [over] = asked(operator, "?group=over&tenant=north")[1]["items"]
    assert over["booking"]["state"] == "ended"
    assert asked(operator, "?group=over")[1]["code"] == "tenant_needed"
    assert asked(operator, "?group=none")[0] == 422
    assert asked(two.site.researcher.token)[0] == 403


def test_an_owner_releases_what_an_operator_asks_for_with_one_click(two: Two) -> None:
    form = {"act": "release", "booking": [str(two.foreign.id)], "text": "An <b> audit", "sure": "1"}
    assert two.operator.post(PAGE, form).status_code == 302
    assert "release asked" in two.operator.get(PAGE).content.decode()
    owner = Client()
    with as_system():
        owner.force_login(User.objects.get(id=two.other.actor.user_id))
    address = f"/t/north/bookings/{two.foreign.label}"
    page = owner.get(address).content.decode()
    assert "An operator asks to release this booking: An &lt;b&gt; audit" in page
    assert 'id="asked-h"' in page
    assert f'action="{address}/cancel"' in page
    assert owner.post(f"{address}/cancel").status_code == 302
    with as_system():
        two.foreign.refresh_from_db()
    assert two.foreign.state == "cancelled"
    assert 'id="asked-h"' not in owner.get(address).content.decode()


def test_rest_names_what_is_not_possible_and_refuses_unknown_bookings(two: Two) -> None:
    address = "fleet/bookings/acts"
    ids = [f"bk_{each.id.hex}" for each in (two.own, two.over)]
    body = {"act": "pause", "text": "An audit", "length": "PT4H", "bookings": ids}
    seen = said(two.site.operator.post(f"{address}/preview", body))
    done = said(two.site.operator.post(address, body))
    assert done == seen
    codes = {each["number"]: each["code"] for each in done["refused"]}
    assert codes == {two.own.label: "tier_never_paused", two.over.label: "booking_over"}
    unknown = f"bk_{uuid4().hex}"
    faults: list[tuple[dict[str, Any], str]] = [
        ({"bookings": [*ids, unknown]}, "bookings"),
        ({"bookings": ["x"]}, "bookings"),
        ({"bookings": [unknown] * 201}, "bookings"),
        ({"act": "move"}, "act"),
        ({"length": None}, "length"),
        ({"length": "P8D"}, "length"),
        ({"text": "x" * 121}, "text"),
        ({"operator": "me"}, "operator"),
    ]
    for more, param in faults:
        answer = two.site.operator.post(address, body | more)
        assert (answer.status_code // 100, said(answer)["param"].split(".")[0]) == (4, param)
    for path in (address, f"{address}/preview"):
        assert two.site.admin.post(path, body).status_code == 403
    with as_system():
        assert not BookingEvent.objects.filter(kind="pause_noticed").exists()


def test_the_list_says_why_each_waits_and_leads_to_its_page(two: Two) -> None:
    with as_system():
        reasons = [{"code": "none_in_service", "numbers": {"gpu_class": "h100", "gpus": 1, "out": 1}}]
        Booking.objects.filter(id=two.foreign.id).update(reasons=reasons, hold_amount=1)
    page = two.operator.get(f"{PAGE}?sort=cost").content.decode()
    href = f"{PAGE}/{two.foreign.id}"
    assert f'href="{href}"' in page
    said = two.operator.get(PAGE).context["rows"]
    why = next(row["why"] for row in said if row["booking"].id == two.foreign.id)
    assert why
    assert why in two.operator.get(href).content.decode()
    assert all(row["why"] == "" for row in said if row["booking"].id == two.own.id)
    for sort in ("oldest", "start", "cost", "tenant", "x"):
        assert len(listed(two, f"?sort={sort}")) == 2
    assert two.operator.get(f"{PAGE}/{two.over.id}").status_code == 200
    assert two.operator.get(f"{PAGE}/{uuid4()}").status_code == 404
    member = Client()
    member.force_login(two.site.people["admin"])
    assert member.get(href).status_code == 404


def test_the_page_of_a_booking_names_its_organisation_and_offers_acts(two: Two) -> None:
    page = flat(two.operator.get(f"{PAGE}/{two.foreign.id}").content.decode())
    assert "our organisation" not in page
    assert "ahead of yours" not in page
    assert two.other.project.tenant.name in page
    assert f'name="booking" value="{two.foreign.id}"' in page
    assert 'value="pause"' in page
    over = flat(two.operator.get(f"{PAGE}/{two.over.id}").content.decode())
    assert 'value="pause"' not in over
