"""Versions of the policy: approved by a second operator, in force from a time on, and taken back."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from allocation.models import PolicyActivation, PolicyApproval, PolicyVersion
from allocation.queries.decisions.policy_versions import version_read
from allocation.services.decide.cycle import is_anything_due, tick_run
from allocation.services.policy.activations import (
    activations_carry_out,
    policy_activate,
    policy_approve,
    policy_publish,
    policy_rollback,
)
from allocation.services.policy.policies import policy_draft
from tenants.models import AuditEntry, User
from tenants.platform.errors import Refused
from tests.api.builders import Site, a_site, said
from tests.builders import a_user
from tests.roles import as_owner, as_role, as_system
from tests.web.flat import flat

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def drafted(by: User | None, **document: object) -> int:
    with as_system():
        person = by.pk if by else None
        return policy_draft(document=document or {"grid": 600}, now=NOW, created_by_id=person).number


def live() -> int:
    with as_system():
        return PolicyVersion.objects.get(state="live").number


def state(number: int) -> str:
    with as_system():
        facts = version_read(number)
        assert facts is not None
        return facts.state


def second() -> User:
    with as_system():
        return a_user("olga", is_staff=True)


def test_a_version_is_in_force_from_its_time_on(site: Site) -> None:
    first, number = live(), drafted(None)
    starts = NOW + HOUR
    with as_role("portal_ops"):
        policy_activate(number=number, now=NOW, operator_id=site.people["operator"].pk, starts=starts)
    assert (live(), state(number)) == (first, "approved")
    with as_system():
        assert not is_anything_due(starts - timedelta(seconds=1))
        tick_run(starts - timedelta(seconds=1))
        assert live() == first
        tick_run(starts)
    assert (live(), state(first)) == (number, "retired")
    with as_system():
        (entry,) = AuditEntry.objects.filter(tenant=None, action="policy.published")
    assert entry.detail["after"]["approved_by"] == "otto"
    assert entry.detail["before"]["grid"] == 300


def test_another_operator_approves_what_one_wrote(site: Site) -> None:
    first, other, author = live(), second(), site.people["operator"]
    number = drafted(author)
    with as_role("portal_ops"):
        with pytest.raises(Refused, match="second_person_needed"):
            policy_activate(number=number, now=NOW, operator_id=author.pk, waiver="I am in a hurry.")
        made = policy_activate(number=number, now=NOW, operator_id=author.pk)
        assert (made.state, made.due_at) == ("waiting", None)
        assert activations_carry_out(NOW + timedelta(days=9)) == 0
        with pytest.raises(Refused, match="second_person_needed"):
            policy_approve(number=number, now=NOW, operator_id=author.pk)
    assert (live(), state(number)) == (first, "draft")
    with as_role("portal_ops"):
        policy_approve(number=number, now=NOW, operator_id=other.pk)
        with pytest.raises(Refused, match="already_approved"):
            policy_approve(number=number, now=NOW, operator_id=other.pk)
    assert live() == number


def test_the_only_operator_waits_for_a_day_or_says_why_not(site: Site) -> None:
    first, author = live(), site.people["operator"]
    number = drafted(author)
    with as_role("portal_ops"):
        policy_activate(number=number, now=NOW, operator_id=author.pk)
        assert activations_carry_out(NOW + timedelta(hours=23)) == 0
        assert activations_carry_out(NOW + timedelta(days=1)) == 1
        last = AuditEntry.objects.filter(tenant=None, action="policy.published").latest("id")
    assert last.detail["after"]["second_operator"] == "There is none. It waited for a day."
    assert live() == number
    other = drafted(author, grid=900)
    with as_role("portal_ops"):
        policy_activate(number=other, now=NOW, operator_id=author.pk, waiver="The queue stands still.")
        last = AuditEntry.objects.filter(tenant=None, action="policy.published").latest("id")
    assert last.detail["after"]["second_operator"] == "There is none. Waived: The queue stands still."
    assert (live(), state(first)) == (other, "retired")


@pytest.mark.parametrize("role", ["portal_system", "portal_ops"])
def test_the_database_wants_a_second_operator_too(site: Site, role: str) -> None:
    author = site.people["operator"]
    number = drafted(author)
    denied = "permission denied" if role == "portal_system" else "their own version"
    with as_role(role):
        with pytest.raises(DatabaseError, match=denied), transaction.atomic():
            PolicyApproval.objects.create(version_id=number, at=NOW, by=author)
        made = PolicyActivation.objects.create(
            version_id=number, kind="activation", asked_at=NOW, asked_by=author, starts=NOW, due_at=NOW
        )
        made.state, made.ended_at = PolicyActivation.State.DONE, NOW
        with pytest.raises(IntegrityError, match="waits for a day"), transaction.atomic():
            made.save(update_fields=["state", "ended_at"])
        made.ended_at = NOW + timedelta(days=1)
        made.save(update_fields=["state", "ended_at"])
        with pytest.raises(IntegrityError, match="ends once"), transaction.atomic():
            made.save(update_fields=["state", "ended_at"])


def test_going_back_is_one_act_with_a_reason(site: Site) -> None:
    first = live()
    with as_role("portal_ops"):
        second_number = policy_publish(document={"grid": 600}, now=NOW).number
        third = policy_publish(document={"grid": 900}, now=NOW).number
        draft = policy_draft(document={"grid": 1200}, now=NOW).number
        for reason, number, code in (
            ("", None, "reason_missing"),
            ("  ", first, "reason_missing"),
            ("Late.", draft, "never_live"),
            ("Late.", third, "no_change"),
            ("Late.", 99, "not_found"),
        ):
            with pytest.raises(Refused, match=code):
                policy_rollback(now=NOW, operator_id=None, reason=reason, number=number)
        assert live() == third
        policy_rollback(now=NOW, operator_id=None, reason="Starts were late.")
        assert live() == second_number
        policy_rollback(now=NOW, operator_id=None, reason="Further back.", number=first)
        entry = AuditEntry.objects.filter(tenant=None, action="policy.rolled_back").latest("id")
    assert live() == first
    assert entry.detail["after"] == {"grid": 300, "version": first, "reason": "Further back."}
    assert entry.detail["before"] == {"grid": 600, "version": second_number}


def test_the_first_version_has_nothing_to_go_back_to(site: Site) -> None:
    with as_system(), pytest.raises(Refused, match="no_earlier_version"):
        policy_rollback(now=NOW, operator_id=None, reason="Late.")


def test_a_version_that_can_no_longer_be_used_fails_and_the_live_one_stays(site: Site) -> None:
    first = live()
    with as_system():
        old = PolicyVersion.objects.create(
            number=first + 1, document={"no_longer_known": 5}, state="draft", created=NOW
        )
        PolicyActivation.objects.create(
            version=old, kind="activation", asked_at=NOW, starts=NOW, due_at=NOW + HOUR
        )
    with as_system():
        tick_run(NOW + HOUR)
        made = PolicyActivation.objects.get(version=old)
        assert (made.state, "no_longer_known" in made.note) == ("failed", True)
        assert AuditEntry.objects.filter(action="policy.activation_failed").count() == 1
    assert live() == first


def test_rest_activates_at_a_time_approves_compares_and_goes_back(site: Site) -> None:
    first = live()
    other = second()
    number = said(site.operator.post("policy/versions", {"document": {"age_step": 43_200}}))["number"]
    address = f"policy/versions/{number}"
    found = said(site.operator.get(f"{address}/difference/{first}"))
    assert found["words"] == ["Waiting-time step: 6h to 12h"]
    assert (found["before"], found["after"]) == ({"age_step": 21_600}, {"age_step": 43_200})
    past = site.operator.post(f"{address}/activate", {"starts": "2020-01-01T00:00:00Z"})
    assert (past.status_code, said(past)["code"], said(past)["param"]) == (422, "bad_starts", "starts")
    wrong: tuple[dict[str, object], ...] = (
        {"start": "2030-01-01T00:00:00Z"},
        {"guarded": {}},
        {"starts": "soon"},
        {"starts": 5},
    )
    for body in wrong:
        refused = site.operator.post(f"{address}/activate", body)
        assert refused.status_code in (400, 422), body
        assert said(site.operator.get(address))["state"] == "draft", body
    starts = (timezone.now() + HOUR).isoformat()
    asked = said(site.operator.post(f"{address}/activate", {"starts": starts}))
    assert (asked["state"], asked["waits_for"]) == ("draft", "second_operator")
    assert site.operator.post(f"{address}/approve").status_code == 409
    with as_role("portal_ops"):
        policy_approve(number=number, now=timezone.now(), operator_id=other.pk)
    shown = said(site.operator.get(address))
    assert (shown["state"], shown["waits_for"], shown["approved_by"]) == ("approved", "start", "olga")
    assert shown["activation"]["due_at"] == shown["activation"]["starts"]
    gone = said(site.operator.post(f"{address}/withdraw"))
    assert (gone["state"], gone["activation"]) == ("approved", None)
    assert said(site.operator.post(f"{address}/withdraw"))["code"] == "not_waiting"
    assert said(site.operator.post(f"{address}/activate", {}))["state"] == "live"
    wrong = ({}, {"reason": ""}, {"reason": "Late.", "versions": 1})
    for body in wrong:
        assert site.operator.post("policy/rollback", body).status_code in (400, 422), body
    assert (
        said(site.operator.post("policy/rollback", {"reason": "Late.", "version": first}))["number"] == first
    )


def test_people_of_tenants_may_do_none_of_it(site: Site) -> None:
    first, number = live(), drafted(None)
    for who in (site.admin, site.lead, site.outsider):
        for act, body in (
            (f"policy/versions/{number}/activate", {}),
            (f"policy/versions/{number}/approve", None),
            (f"policy/versions/{number}/withdraw", None),
            ("policy/rollback", {"reason": "x"}),
        ):
            assert said(who.post(act, body))["code"] == "not_allowed"
        assert said(who.get(f"policy/versions/{number}/difference/{first}"))["code"] == "not_allowed"
    assert live() == first


def test_the_page_shows_a_version_and_carries_out_its_commands(site: Site, client: Client) -> None:
    first, number = live(), drafted(None, age_step=43_200)
    client.force_login(site.people["operator"])
    address = f"/ops/policy/versions/{number}"
    text = client.get(address).content.decode()
    assert "Waiting-time step: 6h to 12h" in text
    # All its values, what it sets itself in bold, and lists in words.
    shown = flat(text)
    assert '<dt>Waiting-time step</dt><dd class="own">12h</dd>' in shown
    assert "Priority of the tier; Own guarantee before borrowed GPUs" in shown
    assert f'href="{address}"' in client.get("/ops/policy").content.decode()
    late = (timezone.localtime() + 2 * HOUR).strftime("%Y-%m-%dT%H:%M")
    done = client.post(address, {"act": "activate", "starts": late}, follow=True)
    assert "goes into force at its time" in done.content.decode()
    assert "does not wait any more" in client.post(address, {"act": "withdraw"}, follow=True).content.decode()
    client.post(address, {"act": "activate"})
    assert live() == number
    back = f"/ops/policy/versions/{first}"
    refused = client.post(back, {"act": "rollback", "reason": ""})
    assert (refused.status_code, live()) == (422, number)
    client.post(back, {"act": "rollback", "reason": "Late."})
    assert live() == first
    client.force_login(site.people["admin"])
    assert client.get(address).status_code in (403, 404)


def test_the_command_does_all_of_it(site: Site) -> None:
    first, text = live(), StringIO()
    with as_owner():
        call_command("policy", "age_step=43200", draft=True, operator="otto", stdout=text)
        number = first + 1
        assert f"Version {number} is a draft." in text.getvalue()
        call_command("policy", compare=[first, number], stdout=text)
        assert "Waiting-time step: 6h to 12h" in text.getvalue()
        with pytest.raises(CommandError, match="Say who you are"):
            call_command("policy", activate=number)
        with pytest.raises(CommandError, match="with its offset"):
            call_command("policy", activate=number, operator="otto", starts="soon")
        call_command("policy", activate=number, operator="otto", waiver="Nobody else is here.", stdout=text)
        assert live() == number
        with pytest.raises(CommandError, match=f"Say why .* Version {number} stays live"):
            call_command("policy", rollback=0)
        call_command("policy", rollback=0, reason="Late.", stdout=text)
        call_command("policy", versions=True, stdout=text)
    assert live() == first
    assert f"   {number}  retired" in text.getvalue()
