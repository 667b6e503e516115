"""Invitations: nobody is a member without consent, and nobody learns who has an account."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from tenants.access import Actor, tenants_of
from tenants.models import AuditEntry, Invitation, Membership, Project, Tenant, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.queries import ReceivedInvitation, received_invitations
from tenants.services import (
    admin_invite,
    invitation_accept,
    invitation_create,
    invitation_decline,
    invitation_revoke,
    tenant_open_set,
)
from tenants.services.members import invitations as invitations_service
from tenants.tasks import sweep
from tests.builders import (
    a_member,
    a_project,
    a_tenant,
    a_tenant_admin,
    a_user,
    actor_now,
    an_actor,
    an_operator,
    signed_in,
)
from tests.roles import as_owner, as_system

NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
DAY = timedelta(days=1)
ALLOWED = {
    "tenant_admin": {"viewer", "researcher", "lead", "tenant_admin"},
    "lead": {"viewer", "researcher", "lead"},
    "researcher": set(),
    "viewer": set(),
}


def invite(
    actor: Actor, to: str, role: str = "researcher", *, project: Project | None, now: datetime = NOW
) -> Invitation:
    slug = project.slug if project else None
    with tenant_tx(actor.tenant_id):
        return invitation_create(actor=actor, to=to, role=role, project=slug, now=now)


def lead_of(project: Project) -> Actor:
    return an_actor(a_member(project, "lead"))


def offers(user: User, now: datetime = NOW) -> list[ReceivedInvitation]:
    return received_invitations(signed_in(user).credential, now)


def with_address(username: str, email: str, **values: Any) -> User:  # noqa: ANN401 (any field)
    user = a_user(username, **values)
    with as_owner():
        User.objects.filter(id=user.id).update(email=email)
    return user


@pytest.mark.django_db
@pytest.mark.parametrize("giver", ALLOWED)
@pytest.mark.parametrize("role", ["viewer", "researcher", "lead", "tenant_admin"])
def test_a_role_is_offered_only_by_those_who_may(giver: str, role: str) -> None:
    project, user = a_project(), a_user()
    admin = giver == "tenant_admin"
    inviter = a_tenant_admin(project.tenant) if admin else a_member(project, giver)
    place = None if role == "tenant_admin" else project
    if role not in ALLOWED[giver]:
        with pytest.raises(Refused, match="not_allowed"):
            invite(an_actor(inviter), user.username, role, project=place)
        return
    made = invite(an_actor(inviter), user.username, role, project=place)
    assert tenants_of(signed_in(user), NOW) == []
    invitation_accept(user=signed_in(user), invitation_id=made.id, now=NOW)
    assert actor_now(user.id, project.tenant.slug).role_in(project.id) == role


@pytest.mark.django_db
def test_the_answer_and_its_work_are_the_same_for_known_and_unknown_people() -> None:
    """No query asks for people, so neither words nor time can differ."""
    project = a_project()
    actor = lead_of(project)
    with_address("mara", "mara@example.org", first_name="Mara")
    a_user("closed", is_active=False)
    seen = []
    for to in ("mara", "mara@example.org", "closed", "nobody", "nobody@example.org"):
        with CaptureQueriesContext(connection) as queries:
            made = invite(actor, to, project=project)
        assert not any("tenants_user" in query["sql"] for query in queries)
        seen.append((made.role, made.state, made.created, made.expires, len(queries)))
    assert len(set(seen)) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("to", ["mara.lind", "MARA.LIND", " mara@example.org ", "Mara@Example.org"])
def test_a_person_is_invited_by_name_or_address(to: str) -> None:
    project, user = a_project(), with_address("mara.lind", "Mara@example.org")
    invite(lead_of(project), to, project=project)
    (offer,) = offers(user)
    assert (offer.tenant_slug, offer.project, offer.role) == (
        project.tenant.slug,
        project.name,
        "researcher",
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    "to",
    [
        *("", "a", "two words", "@", "a\x00b", "é" * 99, "x" * 300, "<b>", "a@b.org\nx"),
        f"{'a' * 250}@b.org",
    ],
)
def test_what_nobody_can_be_called_is_refused_at_its_field(to: str) -> None:
    project = a_project()
    with pytest.raises(Refused, match="bad_invitee") as refused:
        invite(lead_of(project), to, project=project)
    assert refused.value.param == "to"


@pytest.mark.django_db
def test_the_account_may_come_later() -> None:
    project = a_project()
    invite(lead_of(project), "mara@example.org", project=project)
    assert len(offers(with_address("mara", "mara@example.org"))) == 1


@pytest.mark.django_db
def test_without_consent_there_is_no_member() -> None:
    project, user = a_project(), a_user()
    made = invite(lead_of(project), user.username, project=project)
    invitation_decline(user=signed_in(user), invitation_id=made.id, now=NOW)
    assert offers(user) == []
    with pytest.raises(Refused, match="not_found"):
        invitation_accept(user=signed_in(user), invitation_id=made.id, now=NOW)
    assert tenants_of(signed_in(user), NOW) == []


@pytest.mark.django_db
def test_an_invitation_is_of_one_person_only() -> None:
    project, user = a_project(), a_user()
    made = invite(lead_of(project), user.username, project=project)
    for other in (a_user(), a_member(project).user, a_tenant_admin(project.tenant).user):
        assert offers(other) == []
        said = []
        for invitation_id in (made.id, uuid4()):
            for answer in (invitation_accept, invitation_decline):
                with pytest.raises(Refused) as refused:
                    answer(user=signed_in(other), invitation_id=invitation_id, now=NOW)
                said.append(refused.value.sentence)
        assert len(set(said)) == 1
    assert len(offers(user)) == 1


@pytest.mark.django_db
def test_an_invitation_ends_after_two_weeks_and_is_removed_a_month_later() -> None:
    project, user = a_project(), a_user()
    made = invite(lead_of(project), user.username, project=project)
    assert len(offers(user, NOW + 14 * DAY - timedelta(seconds=1))) == 1
    assert offers(user, NOW + 14 * DAY) == []
    with pytest.raises(Refused, match="not_found"):
        invitation_accept(user=signed_in(user), invitation_id=made.id, now=NOW + 14 * DAY)
    with as_system():
        Invitation.objects.update(created=NOW - 50 * DAY, expires=NOW - 45 * DAY)
        sweep()
        assert not Invitation.objects.exists()


def _taken_back(actor: Actor, made: Invitation) -> None:
    with tenant_tx(actor.tenant_id):
        invitation_revoke(actor=actor, invitation_id=made.id, now=NOW)


def _inviter_gone(actor: Actor, made: Invitation) -> None:
    with as_system():
        Membership.objects.filter(user_id=actor.user_id).delete()


def _inviter_lowered(actor: Actor, made: Invitation) -> None:
    with as_system():
        Membership.objects.filter(user_id=actor.user_id).update(role="researcher")


def _inviter_closed(actor: Actor, made: Invitation) -> None:
    with as_owner():
        User.objects.filter(id=actor.user_id).update(is_active=False)


def _project_closed(actor: Actor, made: Invitation) -> None:
    with as_system():
        Project.objects.filter(tenant_id=actor.tenant_id).update(is_open=False)


def _tenant_closed(actor: Actor, made: Invitation) -> None:
    with operator_tx():
        tenant = Tenant.objects.get(id=actor.tenant_id)
        tenant_open_set(operator=an_operator(), tenant=tenant, is_open=False, now=NOW)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "end",
    [
        _taken_back,
        _inviter_gone,
        _inviter_lowered,
        _inviter_closed,
        _project_closed,
        _tenant_closed,
    ],
)
def test_an_invitation_holds_only_as_long_as_its_grounds(
    end: Callable[[Actor, Invitation], None],
) -> None:
    project, user = a_project(), a_user()
    actor = lead_of(project)
    made = invite(actor, user.username, project=project)
    end(actor, made)
    assert offers(user) == []
    with pytest.raises(Refused, match="not_found"):
        invitation_accept(user=signed_in(user), invitation_id=made.id, now=NOW)
    with as_system():
        assert not Membership.objects.filter(user=user).exists()


@pytest.mark.django_db
def test_only_those_who_may_give_the_role_take_it_back() -> None:
    tenant = a_tenant()
    project, other = a_project(tenant), a_project(tenant)
    made = invite(lead_of(project), "nobody", project=project)
    for actor in (lead_of(other), an_actor(a_member(project)), lead_of(a_project())):
        with tenant_tx(actor.tenant_id), pytest.raises(Refused, match="not_found"):
            invitation_revoke(actor=actor, invitation_id=made.id, now=NOW)
    _taken_back(an_actor(a_tenant_admin(tenant)), made)


@pytest.mark.django_db
def test_inviting_again_renews_the_same_invitation() -> None:
    project, user = a_project(), a_user()
    actor = lead_of(project)
    first = invite(actor, user.username, "viewer", project=project)
    again = invite(actor, user.username.upper(), "lead", project=project, now=NOW + 5 * DAY)
    assert first.id == again.id
    (offer,) = offers(user, NOW + 15 * DAY)
    assert offer.role == "lead"


@pytest.mark.django_db
def test_an_accepted_role_replaces_the_one_that_was_there() -> None:
    project = a_project()
    member = a_member(project, "viewer")
    made = invite(lead_of(project), member.user.username, "researcher", project=project)
    invitation_accept(user=signed_in(member.user), invitation_id=made.id, now=NOW)
    with tenant_tx(project.tenant_id):
        assert [m.role for m in Membership.objects.filter(user=member.user)] == ["researcher"]


@pytest.mark.django_db
def test_a_projects_only_lead_cannot_accept_a_smaller_role() -> None:
    project = a_project()
    lead, admin = a_member(project, "lead"), a_tenant_admin(project.tenant)
    made = invite(an_actor(admin), lead.user.username, "viewer", project=project)
    with pytest.raises(Refused, match="last_lead"):
        invitation_accept(user=signed_in(lead.user), invitation_id=made.id, now=NOW)
    assert actor_now(lead.user_id, project.tenant.slug).may_lead(project.id)
    assert [each.id for each in offers(lead.user)] == [made.id], "it can be accepted later"
    a_member(project, "lead")
    invitation_accept(user=signed_in(lead.user), invitation_id=made.id, now=NOW)
    assert actor_now(lead.user_id, project.tenant.slug).role_in(project.id) == "viewer"


@pytest.mark.django_db
def test_an_operator_invites_an_admin_of_any_tenant() -> None:
    tenant, user = a_tenant(), a_user()
    with operator_tx():
        made = admin_invite(operator=an_operator(), tenant=tenant, to=user.username, now=NOW)
    assert tenants_of(signed_in(user), NOW) == []
    invitation_accept(user=signed_in(user), invitation_id=made.id, now=NOW)
    assert actor_now(user.id, tenant.slug).is_tenant_admin


@pytest.mark.django_db
def test_all_of_it_is_in_the_tenants_log_without_names() -> None:
    project, user = a_project(), a_user("mara.lind")
    actor = lead_of(project)
    made = invite(actor, "mara.lind", project=project)
    _taken_back(actor, made)
    made = invite(actor, "mara.lind", project=project)
    invitation_decline(user=signed_in(user), invitation_id=made.id, now=NOW)
    made = invite(actor, "mara.lind", project=project)
    invitation_accept(user=signed_in(user), invitation_id=made.id, now=NOW)
    with tenant_tx(project.tenant_id):
        entries = list(AuditEntry.objects.order_by("id"))
    made_and = "invitation.created"
    assert [entry.action for entry in entries] == [
        *(made_and, "invitation.revoked", made_and, "invitation.declined", made_and),
        *("invitation.accepted", "membership.set"),
    ]
    assert "mara" not in str([entry.detail for entry in entries])


@pytest.mark.django_db
def test_nobody_writes_to_the_whole_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations_service, "MAX_PER_DAY", 2)
    project = a_project()
    actor = lead_of(project)
    for name in ("one", "two"):
        invite(actor, name, project=project)
    with pytest.raises(Refused, match="too_many_invitations"):
        invite(actor, "three", project=project)
    assert invite(actor, "three", project=project, now=NOW + DAY).state == "open"


@pytest.mark.django_db
def test_the_database_keeps_invitations_within_their_tenant() -> None:
    project, foreign = a_project(), a_project()
    made = invite(lead_of(project), "nobody", project=project)
    with tenant_tx(foreign.tenant_id):
        assert not Invitation.objects.exists()
        assert not Invitation.objects.filter(id=made.id).update(role="lead")
    moved = Invitation.objects.filter(id=made.id)
    with (
        as_system(),
        pytest.raises(DatabaseError, match="project_id_in_tenant"),
        transaction.atomic(),
    ):
        moved.update(project=foreign)


@pytest.mark.races
@pytest.mark.usefixtures("real_db")
@pytest.mark.parametrize("second", [invitation_accept, invitation_decline])
def test_of_two_answers_at_once_one_counts(second: Callable[..., ReceivedInvitation]) -> None:
    project, user = a_project(), a_user()
    made = invite(lead_of(project), user.username, project=project)
    signed_in(user)
    together = threading.Barrier(2, timeout=10)
    refused: list[str] = []

    def answer(how: Callable[..., ReceivedInvitation]) -> None:
        try:
            together.wait()
            how(user=user, invitation_id=made.id, now=NOW)
        except Refused as refusal:
            refused.append(refusal.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=answer, args=(how,)) for how in (invitation_accept, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert refused == ["not_found"]
    with tenant_tx(project.tenant_id):
        state = Invitation.objects.get(id=made.id).state
        assert Membership.objects.filter(user=user).exists() == (state == "accepted")
