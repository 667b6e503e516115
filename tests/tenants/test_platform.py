"""What operators change: tiers, tenants, accounts; and the sweeper."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import authenticate
from django.db import DatabaseError, transaction
from django.utils import timezone

from tenants.access import tenants_of
from tenants.models import AuditEntry, IdempotencyKey, Session, Tier, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.services import (
    NewAccount,
    TierTerms,
    account_create,
    tenant_create,
    tenant_open_set,
    tier_set,
)
from tenants.tasks import sweep
from tests.builders import a_member, a_project, a_tenant, a_user, actor_now, an_operator, signed_in
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
TERMS = TierTerms(
    name="Spot",
    priority=10,
    pausable=True,
    grace_seconds=600,
    protected_seconds=0,
    max_duration_seconds=86_400,
    advance_seconds=7 * 86_400,
)


def _set(terms: TierTerms, slug: str = "cheap") -> Tier:
    operator = an_operator()
    with operator_tx():
        return tier_set(operator=operator, slug=slug, terms=terms, now=NOW)


def test_a_tier_is_made_and_changed_and_every_tenants_log_says_so() -> None:
    tenants = [a_tenant(), a_tenant()]
    _set(TERMS)
    assert _set(replace(TERMS, grace_seconds=900)).grace_seconds == 900
    _set(replace(TERMS, grace_seconds=900))
    for tenant in tenants:
        with tenant_tx(tenant.id):
            entries = list(AuditEntry.objects.order_by("id"))
        assert [e.action for e in entries] == ["tier.set", "tier.set"]
        assert entries[1].detail["before"]["grace_seconds"] == 600
        assert entries[1].detail["after"]["grace_seconds"] == 900


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"priority": 1001}, "priority"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"grace_seconds": 86_401}, "grace_seconds"),
        ({"max_duration_seconds": 59}, "max_duration_seconds"),
        ({"max_duration_seconds": 10 * 365 * 86_400}, "max_duration_seconds"),
        ({"advance_seconds": 0}, "advance_seconds"),
        ({"name": ""}, "name"),
        ({"name": "x\u202ey"}, "name"),
        ({"description": "x" * 201}, "description"),
    ],
)
def test_a_tier_with_senseless_terms_is_refused_at_its_field(change: dict[str, object], param: str) -> None:
    with pytest.raises(Refused) as refused:
        _set(replace(TERMS, **change))  # type: ignore[arg-type] # a table of any fields
    assert refused.value.param == param
    assert not Tier.objects.filter(slug="cheap").exists()


def test_a_web_request_outside_an_operators_page_changes_no_tier() -> None:
    operator = an_operator()
    with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
        tier_set(operator=operator, slug="cheap", terms=TERMS, now=NOW)


def test_a_new_tenant_has_an_admin_from_the_start() -> None:
    operator, user = an_operator(), a_user()
    with operator_tx():
        tenant = tenant_create(operator=operator, slug="helix", name="Helix", admin=user.username, now=NOW)
        with pytest.raises(Refused, match="slug_taken"):
            tenant_create(operator=operator, slug="helix", name="H", admin=user.username, now=NOW)
        with pytest.raises(Refused, match="no_such_person"):
            tenant_create(operator=operator, slug="other", name="O", admin="nobody", now=NOW)
    assert actor_now(user.id, "helix").is_tenant_admin
    with tenant_tx(tenant.id):
        assert [e.action for e in AuditEntry.objects.order_by("id")] == [
            "tenant.created",
            "membership.set",
        ]


def test_nobody_gets_into_a_closed_tenant_until_it_opens_again() -> None:
    operator, member = an_operator(), a_member(a_project())
    for is_open in (False, True):
        with operator_tx():
            tenant_open_set(operator=operator, tenant=member.tenant, is_open=is_open, now=NOW)
        assert bool(tenants_of(signed_in(member.user), NOW)) is is_open


def test_an_account_signs_in_and_is_no_operator() -> None:
    with operator_tx():
        account_create(
            operator=an_operator(),
            account=NewAccount("mara.lind", "Mara", "mara@example.org", "a long enough one"),
            now=NOW,
        )
    user = authenticate(username="mara.lind", password="a long enough one")
    assert isinstance(user, User)
    assert not user.is_staff
    assert not user.is_superuser


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"username": "a"}, "bad_username"),
        ({"username": "a b"}, "bad_username"),
        ({"username": "x\x00"}, "bad_username"),
        ({"username": "TAKEN"}, "username_taken"),
        ({"email": "no address"}, "bad_email"),
        ({"email": "a@b.org\nBcc: c@d.org"}, "bad_email"),
        ({"password": "short"}, "bad_password"),
        ({"password": "password1234"}, "bad_password"),
        ({"name": ""}, "bad_name"),
    ],
)
def test_a_bad_account_is_refused(change: dict[str, str], code: str) -> None:
    a_user("taken")
    values = {"username": "new.one", "name": "New", "email": "", "password": "a long enough one"}
    account = NewAccount(**{**values, **change})
    with operator_tx(), pytest.raises(Refused, match=code):
        account_create(operator=an_operator(), account=account, now=NOW)


def test_the_web_can_make_nobody_an_operator() -> None:
    user = a_user()
    with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
        User.objects.filter(id=user.id).update(is_staff=True)


def test_the_sweeper_takes_old_keys_and_sessions_only() -> None:
    now = timezone.now()
    member = a_member(a_project())
    with as_system():
        for age in (8, 6):
            IdempotencyKey.objects.create(
                tenant=member.tenant,
                user=member.user,
                key=f"{age} days",
                body_sha256=b"",
                status=200,
                answer={},
                is_final=True,
                created=now - timedelta(days=age),
            )
    with as_owner():
        for name, left in (("gone", -1), ("live", 1)):
            Session.objects.create(
                digest=name.encode(),
                data="",
                created=now,
                last_seen=now,
                expires=now + timedelta(hours=left),
            )
        sweep()
        sweep()
        assert [key.key for key in IdempotencyKey.objects.all()] == ["6 days"]
        assert [bytes(each.digest) for each in Session.objects.all()] == [b"live"]
