"""Shares of GPU classes: the tenant's by the operator, its split by the tenant's admins."""

import threading
from datetime import UTC, datetime

import pytest
from django.db import connection

from tenants.access import Actor
from tenants.models import AuditEntry, Project, Quota, Tenant, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.queries import project_shares
from tenants.services import Share, quota_set, tenant_quota_set
from tenants.services.labs import room
from tests.builders import (
    UNITS_PER_GPU,
    a_gpu_class,
    a_member,
    a_project,
    a_quota,
    a_tenant,
    a_tenant_admin,
    an_actor,
    an_operator,
)

NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)


def _gpus(guaranteed: float, limit: float | None = None) -> Share:
    units = int(guaranteed * UNITS_PER_GPU)
    return Share(units, None if limit is None else int(limit * UNITS_PER_GPU) - units)


def _give(actor: Actor, project: Project, share: Share, gpu_class: str = "h100") -> Quota:
    with tenant_tx(actor.tenant_id):
        return quota_set(actor=actor, project=project, gpu_class=gpu_class, share=share, now=NOW)


def _give_tenant(operator: User, tenant: Tenant, share: Share) -> Quota:
    with operator_tx():
        return tenant_quota_set(operator=operator, tenant=tenant, gpu_class="h100", share=share, now=NOW)


@pytest.mark.django_db
def test_projects_share_up_to_what_the_tenant_is_guaranteed() -> None:
    tenant = a_tenant()
    one, two = a_project(tenant), a_project(tenant)
    a_quota(tenant, guaranteed=8)
    admin = an_actor(a_tenant_admin(tenant))
    assert _give(admin, one, _gpus(5.5, 10)).guaranteed_units == 308_000
    assert _give(admin, two, _gpus(2.5)).limit_units is None
    with pytest.raises(Refused) as refused:
        _give(admin, two, _gpus(3))
    assert (refused.value.code, refused.value.kind) == ("guarantees_exceeded", "quota")
    assert refused.value.numbers["over"] == UNITS_PER_GPU // 2
    assert "0.5 too many" in refused.value.sentence
    assert "2.5 would work" in refused.value.sentence
    with tenant_tx(tenant.id):
        assert Quota.objects.get(project=two).guaranteed_units == 140_000


@pytest.mark.django_db
def test_a_project_may_be_lowered_even_when_the_tenant_is_over() -> None:
    """Otherwise nobody could repair it, project by project."""
    tenant = a_tenant()
    one, two = a_project(tenant), a_project(tenant)
    a_quota(tenant, guaranteed=2)
    a_quota(tenant, project=one, guaranteed=2)
    admin = an_actor(a_tenant_admin(tenant))
    assert _give(admin, one, _gpus(0)).guaranteed_units == 0
    assert _give(admin, two, _gpus(2)).guaranteed_units == 2 * UNITS_PER_GPU


@pytest.mark.django_db
def test_without_a_tenants_share_a_project_gets_a_limit_but_no_guarantee() -> None:
    tenant = a_tenant()
    project = a_project(tenant)
    a_gpu_class()
    admin = an_actor(a_tenant_admin(tenant))
    assert _give(admin, project, _gpus(0, 4)).limit_units == 4 * UNITS_PER_GPU
    with pytest.raises(Refused, match="guarantees_exceeded"):
        _give(admin, project, _gpus(0.5, 4))


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "researcher", "lead"])
def test_only_a_tenant_admin_splits(role: str) -> None:
    project = a_project()
    a_quota(project.tenant, guaranteed=8)
    with pytest.raises(Refused, match="not_allowed"):
        _give(an_actor(a_member(project, role)), project, _gpus(1))


@pytest.mark.django_db
def test_a_limit_below_the_guarantee_and_an_unknown_class_are_refused() -> None:
    tenant = a_tenant()
    project = a_project(tenant)
    a_quota(tenant, guaranteed=8)
    admin = an_actor(a_tenant_admin(tenant))
    with pytest.raises(Refused, match="bad_share"):
        _give(admin, project, _gpus(2, 1))
    with pytest.raises(Refused, match="bad_share"):
        _give(admin, project, Share(-1, None))
    with pytest.raises(Refused, match="not_found"):
        _give(admin, project, _gpus(1), "no-such-class")


@pytest.mark.django_db
def test_the_operator_cant_take_what_projects_are_promised() -> None:
    tenant, operator = a_tenant(), an_operator()
    project = a_project(tenant)
    a_quota(tenant, guaranteed=8)
    a_quota(tenant, project=project, guaranteed=6)
    with pytest.raises(Refused) as refused:
        _give_tenant(operator, tenant, _gpus(5))
    assert refused.value.code == "guarantees_promised"
    assert "1 too few" in refused.value.sentence
    assert _give_tenant(operator, tenant, _gpus(6, 12)).guaranteed_units == 6 * UNITS_PER_GPU


@pytest.mark.django_db
def test_each_change_is_in_the_tenants_log_with_before_and_after() -> None:
    tenant, operator = a_tenant(), an_operator()
    a_gpu_class()
    for share in (_gpus(4), _gpus(6), _gpus(6)):
        _give_tenant(operator, tenant, share)
    with tenant_tx(tenant.id):
        entries = list(AuditEntry.objects.order_by("id"))
    assert [(e.action, e.actor_id) for e in entries] == [("quota.set", operator.id)] * 2
    assert entries[1].detail["before"]["guaranteed_units"] == 4 * UNITS_PER_GPU
    assert entries[1].detail["after"]["guaranteed_units"] == 6 * UNITS_PER_GPU


@pytest.mark.django_db
def test_what_is_split_counts_projects_that_the_reader_does_not_see() -> None:
    tenant = a_tenant()
    mine, hidden = a_project(tenant), a_project(tenant)
    a_quota(tenant, guaranteed=8)
    a_quota(tenant, project=mine, guaranteed=1)
    a_quota(tenant, project=hidden, guaranteed=2)
    with tenant_tx(tenant.id):
        (shares,) = [s for s in project_shares(tenant, [mine]) if s.gpu_class.slug == "h100"]
    assert shares.split_units == 3 * UNITS_PER_GPU
    assert [row.owner for row in shares.rows] == [mine]


def _both_take_all() -> int:
    """Two admins give 8 of the tenant's 8 GPUs to two projects at once; GPUs given in the end."""
    tenant = a_tenant()
    a_quota(tenant, guaranteed=8)
    admin = an_actor(a_tenant_admin(tenant))
    together = threading.Barrier(2, timeout=10)
    threads = [
        threading.Thread(target=_take_all, args=(admin, a_project(tenant), together)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    with tenant_tx(tenant.id):
        rows = Quota.objects.filter(project__isnull=False)
        return sum(row.guaranteed_units for row in rows) // UNITS_PER_GPU


def _take_all(admin: Actor, project: Project, together: threading.Barrier) -> None:
    try:
        with tenant_tx(admin.tenant_id):
            together.wait()
            quota_set(actor=admin, project=project, gpu_class="h100", share=_gpus(8), now=NOW)
            _meet(together)
    except Refused as refusal:
        assert refusal.code == "guarantees_exceeded"  # noqa: PT017 (raises would be lost here)
    finally:
        connection.close()


def _meet(together: threading.Barrier) -> None:
    try:
        together.wait(1)
    except threading.BrokenBarrierError:
        return


@pytest.mark.races
@pytest.mark.usefixtures("real_db")
def test_two_who_split_at_once_give_no_more_than_there_is() -> None:
    assert _both_take_all() == 8


@pytest.mark.races
@pytest.mark.usefixtures("real_db")
def test_without_the_lock_both_would_get_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlocked(tenant_id: object, gpu_class: object) -> Quota | None:
        return Quota.objects.filter(project=None).first()

    monkeypatch.setattr(room, "tenant_quota_locked", unlocked)
    assert _both_take_all() == 16
