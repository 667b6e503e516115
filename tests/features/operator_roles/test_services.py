"""Giving, approving and ending roles of operators, and what a limit to classes or racks leaves."""

import ast
import re
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from allocation.features.operator_roles.services import (
    OperatorRoleTerms,
    operator_role_approve,
    operator_role_end,
    operator_role_give,
)
from allocation.features.zones.services import StorageTerms, storage_set
from allocation.models import Node, Rack
from allocation.services.nodes.fleet import node_key_rotate
from allocation.services.operate.drain import node_drain
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_plan
from billing.models import PriceDraft
from tenants.access import PlatformActor, operator_rights
from tenants.models import ApiToken, AuditEntry, OperatorRole, Session, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area, Rights
from tenants.services.members.people import account_erase, account_open_set
from tests.api.builders import a_site, a_token, some_hardware
from tests.builders import a_gpu_class, a_session, a_user, actor_now, an_operator
from tests.builders_allocation import HOUR
from tests.roles import as_owner, as_system
from tests.servers.servers import ROOT

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def _actor(user: User) -> PlatformActor:
    return PlatformActor(user.pk, user.username)


def _give(by: User, username: str, role: str, *names: str) -> OperatorRole:
    with operator_tx():
        terms = OperatorRoleTerms(username=username, role=role, names=names)
        return operator_role_give(actor=_actor(by), terms=terms, now=NOW)


def _end(by: User, row: OperatorRole) -> OperatorRole:
    with operator_tx():
        return operator_role_end(actor=_actor(by), role_id=row.id, now=NOW)


def _role_of(user: User) -> OperatorRole:
    with as_system():
        return OperatorRole.objects.get(user=user, ended=None)


def _code(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused, operator_tx():
        act()
    return refused.value.code


def _rights(user: User) -> Rights:
    with as_system():
        user.refresh_from_db()
    user.credential = bytes(a_session(user).digest)
    return operator_rights(user, timezone.now())


def test_an_account_becomes_an_operator_without_what_it_had_before_and_ceases_to_be_one() -> None:
    site = a_site()
    olga, mara = site.people["operator"], site.people["researcher"]
    with as_system():
        a_session(mara)
    row = _give(olga, "mara", "support")
    with as_system():
        assert User.objects.get(id=mara.pk).is_staff
        assert not ApiToken.objects.filter(user=mara, revoked=None).exists()
        assert not Session.objects.filter(user=mara).exists()
        rights = _rights(mara)
    assert rights.may(Area.BOOKINGS, act=True)
    assert not rights.may(Area.MONEY, act=True)
    assert _code(lambda: _give(olga, "mara", "support")) == "role_given"
    _end(olga, row)
    assert _end(olga, row).ended == NOW
    with as_system():
        assert not User.objects.get(id=mara.pk).is_staff
        actions = AuditEntry.objects.filter(object_kind="operator_role").order_by("id")
        assert list(actions.values_list("action", flat=True)) == [
            "operator_role.given",
            "operator_role.ended",
        ]
        assert not _rights(mara).grants


def test_the_last_operator_who_may_do_everything_stays() -> None:
    olga, rita = an_operator("olga"), an_operator("rita", "read_only")
    own = _role_of(olga)
    assert (
        _code(lambda: operator_role_end(actor=_actor(olga), role_id=own.id, now=NOW)) == "last_site_operator"
    )
    for change in ({"is_active": False}, {"is_staff": False}):
        with pytest.raises(IntegrityError, match="operator_last_site"), as_owner(), transaction.atomic():
            User.objects.filter(id=olga.pk).update(**change)
    with pytest.raises(IntegrityError, match="operator_last_site"), as_owner(), transaction.atomic():
        OperatorRole.objects.filter(id=own.id).update(ended=NOW)
    _give(olga, "rita", "site")
    _end(rita, own)
    with as_system():
        assert not User.objects.get(id=olga.pk).is_staff


def test_a_third_operator_approves_a_role_that_may_do_everything() -> None:
    olga, otto = an_operator("olga"), an_operator("otto")
    a_user("nina")
    row = _give(olga, "nina", "site")
    with as_system():
        nina = User.objects.get(username="nina")
    assert row.since is None
    assert not nina.is_staff
    assert not _rights(nina).grants
    for who in (olga, nina):
        said = _code(lambda: operator_role_approve(actor=_actor(who), role_id=row.id, now=NOW))  # noqa: B023
        assert said == "second_person_needed"
    # Nor does the database take it from who gave it.
    with pytest.raises(IntegrityError, match="second_person"), as_owner(), transaction.atomic():
        OperatorRole.objects.filter(id=row.id).update(since=NOW)
    with operator_tx():
        operator_role_approve(actor=_actor(otto), role_id=row.id, now=NOW)
    with as_system():
        assert _rights(nina).may(Area.ROLES, act=True)
    assert (
        _code(lambda: operator_role_approve(actor=_actor(otto), role_id=row.id, now=NOW))
        == "role_not_waiting"
    )
    assert _code(lambda: operator_role_end(actor=_actor(otto), role_id=uuid4(), now=NOW)) == "not_found"


def test_who_only_reads_is_no_second_person() -> None:
    olga = an_operator("olga")
    an_operator("rita", "read_only")
    with as_system():
        assert is_only_operator(olga.pk, Area.MONEY, NOW)
    an_operator("bill", "billing")
    with as_system():
        assert not is_only_operator(olga.pk, Area.MONEY, NOW)
        assert is_only_operator(olga.pk, Area.RULES, NOW)


@pytest.mark.parametrize("how", ["closed", "erased", "role ended"])
def test_who_is_put_out_of_office_still_is_the_second_person_for_a_week(how: str) -> None:
    """Otherwise one operator closes the account of the other, publishes alone, and opens it again."""
    olga, bill = an_operator("olga"), an_operator("bill", "billing")
    with operator_tx():
        if how == "role ended":
            operator_role_end(actor=_actor(olga), role_id=OperatorRole.objects.get(user=bill).id, now=NOW)
        else:
            account_open_set(operator=olga, user_id=bill.pk, is_open=False, now=NOW)
        if how == "erased":
            account_erase(operator=olga, user_id=bill.pk, now=NOW)
    with as_system():
        assert not is_only_operator(olga.pk, Area.MONEY, NOW + timedelta(days=6))
        assert is_only_operator(olga.pk, Area.MONEY, NOW + timedelta(days=8))
    draft = PriceDraft(
        author=olga, revision=1, content={}, created_at=NOW, changed_at=NOW, state=PriceDraft.State.OPEN
    )
    with operator_tx():
        draft.save(force_insert=True)
    published = {"state": "published", "decided_by": olga, "decided_at": NOW + timedelta(days=6)}
    with pytest.raises(IntegrityError, match="price_draft_second_person"), operator_tx():
        PriceDraft.objects.update(**published)


@pytest.mark.parametrize(
    ("username", "role", "names", "code"),
    [
        ("nobody", "support", (), "not_found"),
        ("n\x00", "support", (), "not_found"),
        ("mara", "boss", (), "bad_role"),
        ("mara", "class", (), "bad_names"),
        ("mara", "class", ("b900",), "bad_names"),
        ("mara", "pool", ("h100",), "bad_names"),
        ("mara", "support", ("h100",), "bad_names"),
    ],
)
def test_a_bad_role_is_refused(username: str, role: str, names: tuple[str, ...], code: str) -> None:
    a_user("mara")
    a_gpu_class("h100")
    olga = an_operator("olga")
    assert _code(lambda: _give(olga, username, role, *names)) == code


def test_a_role_of_classes_or_racks_acts_on_their_nodes_only() -> None:
    some_hardware()
    with as_system():
        node = Node.objects.select_related("rack").get()
        Rack.objects.create(name="r9")
    terms = MaintenanceTerms(
        starts=NOW + HOUR, ends=NOW + 2 * HOUR, reason="fans", rack=node.rack.name, node="", gpu=None
    )
    theirs = (("class", "h100"), ("pool", node.rack.name))
    others = (("class", "a100"), ("pool", "r9"))
    a_gpu_class("a100")
    for number, (role, name) in enumerate((*theirs, *others)):
        operator = an_operator(f"op-{number}", role, name)
        acts: tuple[Callable[[], object], ...] = (
            lambda: node_drain(operator=operator, node=node, reason="fans", now=NOW),  # noqa: B023
            lambda: maintenance_plan(operator=operator, terms=terms, now=NOW - timedelta(seconds=1)),  # noqa: B023
            lambda: storage_set(
                actor=PlatformActor.of(operator),  # noqa: B023
                node=node.name,
                terms=StorageTerms(storage="local", scratch_gb=number + 1),  # noqa: B023
                now=NOW,
            ),
        )
        for act in acts:
            if (role, name) in theirs:
                with operator_tx():
                    act()
                    transaction.set_rollback(False)
            else:
                assert _code(act) == "not_your_nodes"
    assert _code(lambda: node_key_rotate(operator=an_operator("r", "read_only"), node=node, now=NOW)) in (
        "not_your_nodes",
        "node_not_enrolled",
    )


def test_acts_on_nodes_are_logged_by_what_checks_whose_nodes_they_are() -> None:
    """`platform_record` checks nobody's reach."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "allocation").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "platform_record"
        and re.search(r"\('(node|gpu)',", ast.unparse(call))
    }
    assert found == {"allocation/services/nodes/fleet.py"}, (
        "call node_audit, which checks the operator's reach"
    )


def test_a_token_of_an_operator_has_their_roles() -> None:
    site = a_site()
    token = a_token(actor_now(site.people["operator"].pk, site.tenant.slug))
    assert site.operator.get("operator-roles").status_code == 200
    answer = site.operator.post("operator-roles", {"username": "mara", "role": "class", "names": ["h100"]})
    assert answer.status_code == 201, answer.content
    assert token
    assert site.researcher.get("operator-roles").status_code == 401
