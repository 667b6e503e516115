"""Roles: who gives them, who loses them, and that a tenant is never left without an admin."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import connection

from tenants.access import Actor
from tenants.models import AuditEntry, Membership, Project, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import (
    membership_remove,
    membership_role_set,
    project_create,
    project_open_set,
    user_zone_set,
)
from tenants.services.members import people as people_service
from tests.builders import (
    a_member,
    a_project,
    a_tenant,
    a_tenant_admin,
    a_user,
    actor_now,
    an_actor,
)

NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
ALLOWED = {
    "tenant_admin": {"viewer", "researcher", "lead", "tenant_admin"},
    "lead": {"viewer", "researcher", "lead"},
    "researcher": set(),
    "viewer": set(),
}


def _member(project: Project, role: str) -> Actor:
    if role == "tenant_admin":
        return an_actor(a_tenant_admin(project.tenant))
    return an_actor(a_member(project, role))


@pytest.mark.django_db
@pytest.mark.parametrize("giver", ALLOWED)
@pytest.mark.parametrize("role", ["viewer", "researcher", "lead"])
def test_a_role_is_changed_only_by_those_who_may(giver: str, role: str) -> None:
    project = a_project()
    actor, member = _member(project, giver), a_member(project, "viewer")

    def give() -> Membership:
        with tenant_tx(actor.tenant_id):
            return membership_role_set(actor=actor, membership_id=member.id, role=role, now=NOW)

    if role in ALLOWED[giver]:
        assert give().role == role
        assert actor_now(member.user_id, project.tenant.slug).role_in(project.id) == role
    else:
        with pytest.raises(Refused, match="not_allowed"):
            give()
        assert actor_now(member.user_id, project.tenant.slug).role_in(project.id) == "viewer"


@pytest.mark.django_db
def test_a_lead_has_no_say_in_another_project() -> None:
    tenant = a_tenant()
    own, other = a_project(tenant), a_project(tenant)
    actor = _member(own, "lead")
    said = []
    for membership_id in (a_member(other).id, a_member(a_project()).id, uuid4()):
        with tenant_tx(tenant.id), pytest.raises(Refused) as refused:
            membership_role_set(actor=actor, membership_id=membership_id, role="viewer", now=NOW)
        said.append((refused.value.code, refused.value.sentence))
    assert said[0] == said[1] == said[2]


@pytest.mark.django_db
def test_a_new_role_takes_the_place_of_the_old_one() -> None:
    project = a_project()
    actor, member = _member(project, "lead"), a_member(project, "viewer")
    with tenant_tx(actor.tenant_id):
        for role in ("researcher", "researcher"):
            membership_role_set(actor=actor, membership_id=member.id, role=role, now=NOW)
        assert [m.role for m in Membership.objects.filter(user=member.user)] == ["researcher"]
        details = [entry.detail for entry in AuditEntry.objects.order_by("id")]
    assert [(d["before"], d["role"]) for d in details] == [("viewer", "researcher")], (
        "the second call changed nothing, so it says nothing"
    )


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["", "operator", "TENANT_ADMIN", "tenant_admin", "owner"])
def test_an_invented_role_is_refused(role: str) -> None:
    project = a_project()
    actor, member = _member(project, "tenant_admin"), a_member(project)
    with tenant_tx(actor.tenant_id), pytest.raises(Refused, match="bad_role"):
        membership_role_set(actor=actor, membership_id=member.id, role=role, now=NOW)


@pytest.mark.django_db
def test_who_is_removed_is_out_at_once() -> None:
    project = a_project()
    member = a_member(project)
    actor = _member(project, "lead")
    with tenant_tx(actor.tenant_id):
        membership_remove(actor=actor, membership_id=member.id, now=NOW)
        assert [e.action for e in AuditEntry.objects.all()] == ["membership.removed"]
    with pytest.raises(Refused, match="not_found"):
        actor_now(member.user_id, project.tenant.slug)


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "researcher"])
def test_plain_members_remove_nobody(role: str) -> None:
    project = a_project()
    member = a_member(project)
    actor = _member(project, role)
    with tenant_tx(actor.tenant_id), pytest.raises(Refused, match="not_allowed"):
        membership_remove(actor=actor, membership_id=member.id, now=NOW)


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "researcher", "lead"])
def test_everybody_leaves_by_themselves_but_the_only_lead(role: str) -> None:
    project = a_project()
    own = a_member(project, role)
    a_member(project, "lead", user=a_user(is_active=False))
    actor = an_actor(own)
    with tenant_tx(actor.tenant_id):
        if role == "lead":
            # Neither by leaving nor by a smaller role; a tenant admin may, or another lead helps.
            with pytest.raises(Refused, match="last_lead"):
                membership_remove(actor=actor, membership_id=own.id, now=NOW)
            with pytest.raises(Refused, match="last_lead"):
                membership_role_set(actor=actor, membership_id=own.id, role="researcher", now=NOW)
    if role == "lead":
        a_member(project, "lead")
    with tenant_tx(actor.tenant_id):
        membership_remove(actor=actor, membership_id=own.id, now=NOW)
    with pytest.raises(Refused, match="not_found"):
        actor_now(own.user_id, project.tenant.slug)


@pytest.mark.django_db
def test_a_foreign_membership_is_not_there() -> None:
    member = a_member(a_project())
    actor = an_actor(a_tenant_admin(a_tenant()))
    with tenant_tx(actor.tenant_id), pytest.raises(Refused, match="not_found"):
        membership_remove(actor=actor, membership_id=member.id, now=NOW)


@pytest.mark.django_db
def test_the_last_admin_cant_be_removed_not_even_by_themselves() -> None:
    tenant = a_tenant()
    last = a_tenant_admin(tenant)
    actor = an_actor(last)
    a_tenant_admin(tenant, user=a_user(is_active=False))
    with tenant_tx(tenant.id), pytest.raises(Refused, match="last_admin"):
        membership_remove(actor=actor, membership_id=last.id, now=NOW)
    another = a_tenant_admin(tenant)
    with tenant_tx(tenant.id):
        membership_remove(actor=actor, membership_id=last.id, now=NOW)
    assert an_actor(another).is_tenant_admin


def _both_leave() -> int:
    """Two admins remove themselves at the same moment; how many admins are left."""
    tenant = a_tenant()
    admins = [a_tenant_admin(tenant) for _ in range(2)]
    together = threading.Barrier(2, timeout=10)
    threads = [threading.Thread(target=_leave, args=(an_actor(admin), admin, together)) for admin in admins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    with tenant_tx(tenant.id):
        return Membership.objects.filter(role="tenant_admin").count()


def _leave(actor: Actor, admin: Membership, together: threading.Barrier) -> None:
    try:
        with tenant_tx(actor.tenant_id):
            together.wait()
            membership_remove(actor=actor, membership_id=admin.id, now=NOW)
            # Without locks both are here before either commits.
            _meet(together)
    except Refused as refusal:
        assert refusal.code == "last_admin"  # noqa: PT017 (in a thread raises would be lost)
    finally:
        connection.close()


def _meet(together: threading.Barrier) -> None:
    try:
        together.wait(1)
    except threading.BrokenBarrierError:
        return


@pytest.mark.races
@pytest.mark.usefixtures("real_db")
def test_two_admins_who_leave_at_once_leave_one_behind() -> None:
    assert _both_leave() == 1


@pytest.mark.races
@pytest.mark.usefixtures("real_db")
def test_without_the_lock_both_would_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlocked(leaving: Membership) -> None:
        others = Membership.objects.filter(role="tenant_admin").exclude(id=leaving.id)
        if not others.exists():
            raise Refused("last_admin", "")

    monkeypatch.setattr(people_service, "require_another_admin", unlocked)
    assert _both_leave() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "researcher", "lead"])
def test_only_a_tenant_admin_makes_and_closes_projects(role: str) -> None:
    project = a_project()
    actor = _member(project, role)
    acts: list[Callable[[], object]] = [
        lambda: project_create(actor=actor, slug="new", name="New", now=NOW),
        lambda: project_open_set(actor=actor, slug=project.slug, is_open=False, now=NOW),
    ]
    for act in acts:
        with tenant_tx(actor.tenant_id), pytest.raises(Refused, match="not_allowed"):
            act()


@pytest.mark.django_db
def test_two_tenants_may_have_projects_of_one_short_name() -> None:
    """A refusal would reveal to one tenant the names of the other's projects."""
    for tenant in (a_tenant(), a_tenant()):
        actor = an_actor(a_tenant_admin(tenant))
        with tenant_tx(tenant.id):
            made = project_create(actor=actor, slug="vision", name="Vision", now=NOW)
            with pytest.raises(Refused, match="slug_taken"):
                project_create(actor=actor, slug="vision", name="Again", now=NOW)
        assert made.tenant_id == tenant.id


@pytest.mark.django_db
def test_closing_a_project_twice_is_one_entry_in_the_log() -> None:
    project = a_project()
    actor = _member(project, "tenant_admin")
    with tenant_tx(actor.tenant_id):
        for _ in range(2):
            project_open_set(actor=actor, slug=project.slug, is_open=False, now=NOW)
        assert not Project.objects.get(id=project.id).is_open
        assert [e.action for e in AuditEntry.objects.all()] == ["project.closed"]


@pytest.mark.django_db
def test_a_zone_is_one_that_the_world_has() -> None:
    actor = _member(a_project(), "viewer")
    with tenant_tx(actor.tenant_id):
        user_zone_set(actor=actor, zone="Asia/Kathmandu", now=NOW)
        for zone in ("", "Mars/Olympus", "../../etc/passwd", "europe/berlin", "UTC\x00"):
            with pytest.raises(Refused, match="bad_zone"):
                user_zone_set(actor=actor, zone=zone, now=NOW)
        assert User.objects.get(id=actor.user_id).time_zone == "Asia/Kathmandu"
