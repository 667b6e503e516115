"""Stand-ins decide requests for approvers, in time and within the approver's rights."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from allocation.features.approval_rules.services import ApprovalRuleTerms
from allocation.features.stand_ins.models import StandIn
from allocation.features.stand_ins.services import StandInTerms, stand_in_end, stand_in_set
from allocation.models import ApprovalAct
from allocation.queries.bookings.approvals import approvals_to_decide, approvers_of
from allocation.rules.approvals import Step
from tenants.access import Actor
from tenants.models import AuditEntry, Role, User
from tenants.platform.wall import tenant_tx
from tenants.services import token_create, token_revoke
from tenants.services.credentials.tokens import token_verify
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.roles import as_system
from tests.services.bookings.test_approvals import asked, booked, decided, ruled
from tests.services.bookings.test_approvers import refusal_of, stored_of


@pytest.fixture
def lead(lab: Lab) -> Actor:
    """A lead of the lab's project, where costly bookings need an approval."""
    found = an_actor(a_member(lab.project, Role.LEAD))
    ruled(an_actor(a_tenant_admin(lab.tenant)))
    return found


def name_of(actor: Actor) -> str:
    with as_system():
        return User.objects.get(id=actor.user_id).username


def named(actor: Actor, person: Actor, days: int = 2) -> StandIn:
    terms = StandInTerms(person=name_of(person), until=NOW + timedelta(days=days))
    with tenant_tx(actor.tenant_id):
        return stand_in_set(actor=actor, terms=terms, now=NOW)


def test_a_stand_in_decides_in_time_and_never_for_who_asks(lab: Lab, lead: Actor) -> None:
    colleague = an_actor(a_member(lab.project, Role.VIEWER))
    approval = asked(booked(lab))
    assert refusal_of(lambda: decided(colleague, approval)) == "not_found"
    assert refusal_of(lambda: named(colleague, lead)) == "not_allowed"
    assert refusal_of(lambda: named(lead, lead)) == "stand_in_self"
    assert refusal_of(lambda: named(lead, an_actor(a_member(a_lab("x").project)))) == "not_found"
    assert refusal_of(lambda: named(lead, colleague, days=91)) == "bad_until"
    row = named(lead, colleague)
    with tenant_tx(lab.tenant_id):
        assert [each.id for each in approvals_to_decide(colleague, NOW)] == [approval.id]
        assert colleague.user_id in approvers_of(approval, NOW)
        assert colleague.user_id not in approvers_of(approval, NOW + timedelta(days=2))
    later = NOW + timedelta(days=2)
    assert refusal_of(lambda: decided(colleague, approval, now=later)) == "not_found"
    decided(colleague, approval)
    with as_system():
        act = ApprovalAct.objects.get()
        assert (act.person_id, act.principal_id) == (colleague.user_id, lead.user_id)
        detail = AuditEntry.objects.get(action="approval.approved").detail
    assert detail["principal"] == lead.user_id
    # A request of the approver, and one of the stand-in, is decided by others.
    with tenant_tx(lab.tenant_id):
        stand_in_end(actor=lead, stand_in_id=row.id, now=NOW + HOUR)
        assert not approvals_to_decide(colleague, NOW + HOUR).exists()


def test_a_stand_in_that_a_token_named_ends_with_it(lab: Lab, lead: Actor) -> None:
    colleague = an_actor(a_member(lab.project, Role.VIEWER))
    with tenant_tx(lab.tenant_id):
        parent, _ = token_create(actor=lead, name="leaked", days=9, now=NOW)
        child, clear = token_create(actor=lead, name="child", days=9, now=NOW, made_with=parent.id)
    holder = token_verify(clear, now=NOW)
    assert holder is not None
    assert holder.actor is not None
    row = named(holder.actor, colleague)
    approval = asked(booked(lab))
    with tenant_tx(lab.tenant_id):
        assert [each.id for each in approvals_to_decide(colleague, NOW)] == [approval.id]
        token_revoke(actor=lead, token_id=parent.id, now=NOW)
        assert not approvals_to_decide(colleague, NOW).exists()
    assert refusal_of(lambda: decided(colleague, approval)) == "not_found"
    with as_system(), pytest.raises(IntegrityError, match="nobody has named"), transaction.atomic():
        ApprovalAct.objects.create(
            tenant_id=lab.tenant_id,
            approval=approval,
            step=1,
            person_id=colleague.user_id,
            principal_id=lead.user_id,
            verdict="approve",
            at=NOW,
        )
    assert row.made_with_id == child.id
    named(lead, colleague)
    decided(colleague, approval)


def test_nobody_is_a_stand_in_for_their_own_request_or_decides_two_steps(lab: Lab, lead: Actor) -> None:
    admin = an_actor(a_tenant_admin(lab.tenant))
    ruled(admin, ApprovalRuleTerms(name="Two", steps=(Step("lead"), Step("admin")), min_gpus=1))
    second = an_actor(a_member(lab.project, Role.LEAD))
    named(lead, lab.actor)
    approval = asked(booked(lab))
    assert refusal_of(lambda: decided(lab.actor, approval)) == "not_allowed"
    # The admin's stand-in is a lead, who decided the first step in their own right.
    named(admin, second)
    decided(second, approval)
    approval = asked(stored_of(approval))
    assert approval.step == 2
    assert refusal_of(lambda: decided(second, approval)) == "not_allowed"
    with as_system(), pytest.raises(IntegrityError, match="two steps"), transaction.atomic():
        ApprovalAct.objects.create(
            tenant_id=lab.tenant_id,
            approval=approval,
            step=2,
            person_id=lead.user_id,
            principal_id=second.user_id,
            verdict="approve",
            at=NOW,
        )
    # The request of a lead who named a stand-in.
    mine = replace(lab, actor=lead)
    named(lead, second)
    theirs = asked(booked(mine))
    with as_system(), pytest.raises(IntegrityError, match="own request"), transaction.atomic():
        ApprovalAct.objects.create(
            tenant_id=lab.tenant_id,
            approval=theirs,
            step=1,
            person_id=second.user_id,
            principal_id=lead.user_id,
            verdict="approve",
            at=NOW,
        )
