"""What was written is chained: nobody changes, removes or slips in a row unseen."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from allocation.models import Decision, PolicyVersion
from portal.storage.audit_sources import DECISIONS, POLICIES, audit_seal_all
from tenants.audit import audit_record
from tenants.models import AuditEntry, AuditSeal, Tenant, User
from tenants.services.sealed_log.chain import ENTRIES, chain_seal, chain_verify
from tests.builders import a_tenant, an_operator
from tests.roles import as_role, as_system
from tests.servers.servers import Servers

NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)


def written(tenant: Tenant | None, count: int = 3) -> list[int]:
    """Entries about something, by id."""
    before = AuditEntry.objects.count()
    for number in range(count):
        audit_record(
            tenant_id=tenant.id if tenant else None,
            actor_id=None,
            action="thing.done",
            target=("thing", before + number),
            now=NOW,
            detail={"amount": "1.50", "é": [number]},
        )
    return list(AuditEntry.objects.order_by("-id").values_list("id", flat=True)[:count])[::-1]


def faults() -> list[str]:
    """What `audit_verify` finds."""
    try:
        call_command("audit_verify", stdout=io.StringIO())
    except CommandError as error:
        return str(error).splitlines()
    return []


@pytest.fixture
def sealed(db: None) -> Iterator[tuple[Tenant, list[int]]]:
    """A tenant with two sealed batches, next to the platform's own; as the system."""
    tenant = a_tenant()
    with as_system():
        first = written(tenant)
        written(None)
        audit_seal_all(NOW)
        ids = first + written(tenant)
        audit_seal_all(NOW + timedelta(minutes=1))
        yield tenant, ids


def tampered(statement: str, *values: int | list[int]) -> None:
    """As the owner of the tables can: with their triggers off."""
    table = statement.split()[2 if statement.startswith("DELETE") else 1]
    with as_role("portal_owner"), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(statement, list(values))
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def test_what_was_written_is_sealed_by_tenant_and_fits(sealed: tuple[Tenant, list[int]]) -> None:
    tenant, ids = sealed
    own = AuditSeal.objects.filter(source="audit", tenant=tenant).order_by("number")
    assert [(seal.number, seal.entries) for seal in own] == [(1, ids[:3]), (2, ids[3:])]
    assert bytes(own[1].previous) == bytes(own[0].digest)
    assert AuditSeal.objects.filter(source="audit", tenant=None).count() == 1
    assert audit_seal_all(NOW + timedelta(minutes=2)) == 0
    assert faults() == []


CHANGES: dict[str, tuple[str, Callable[[list[int]], list[int]], str]] = {
    "another detail": (
        "UPDATE tenants_auditentry SET detail = '{}' WHERE id = %s",
        lambda ids: [ids[1]],
        "row {1} was changed",
    ),
    "another time": (
        "UPDATE tenants_auditentry SET at = at + interval '1 microsecond' WHERE id = %s",
        lambda ids: [ids[1]],
        "row {1} was changed",
    ),
    "removed": (
        "DELETE FROM tenants_auditentry WHERE id = %s",
        lambda ids: [ids[1]],
        "row {1} is gone",
    ),
    "given to the platform": (
        "UPDATE tenants_auditentry SET tenant_id = NULL WHERE id = %s",
        lambda ids: [ids[1]],
        "row {1} is gone",
    ),
    "two in the other order": (
        "UPDATE tenants_auditentry a SET object_id = b.object_id FROM tenants_auditentry b"
        " WHERE (a.id, b.id) IN ((%s, %s), (%s, %s))",
        lambda ids: [ids[0], ids[1], ids[1], ids[0]],
        "row {0} was changed",
    ),
    "a seal without its batch": (
        "UPDATE tenants_auditseal SET entries = '{}', marks = '' WHERE entries[1] = %s",
        lambda ids: [ids[3]],
        "seal 2 was changed",
    ),
    "a seal is gone": (
        "DELETE FROM tenants_auditseal WHERE entries[1] = %s",
        lambda ids: [ids[0]],
        "seals 1 to 1 are gone",
    ),
    "a seal of another chain": (
        "UPDATE tenants_auditseal SET previous = digest WHERE entries[1] = %s",
        lambda ids: [ids[3]],
        "seal 2 does not follow the previous one",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_found_and_named(sealed: tuple[Tenant, list[int]], name: str) -> None:
    tenant, ids = sealed
    statement, values, said = CHANGES[name]
    tampered(statement, *values(ids))
    assert f"audit/{tenant.id}: {said.format(*ids)}" in faults()


def test_a_row_that_is_slipped_in_is_found_and_never_sealed(
    sealed: tuple[Tenant, list[int]],
) -> None:
    tenant, ids = sealed
    with as_system():
        written(tenant)
        audit_seal_all(NOW + timedelta(minutes=30))
        tampered("DELETE FROM tenants_auditentry WHERE id = %s", ids[1])
        assert len(faults()) == 1
        AuditEntry(id=ids[1] - 1000, tenant=tenant, at=NOW, action="x", object_kind="x", object_id="x").save(
            force_insert=True
        )
        audit_seal_all(NOW + timedelta(minutes=31))
    assert f"audit/{tenant.id}: row {ids[1] - 1000} was inserted later" in faults()


def test_a_row_whose_transaction_ends_late_is_sealed_with_a_later_batch(db: None) -> None:
    tenant = a_tenant()
    with as_system():
        ids = written(tenant)
        late = AuditEntry.objects.get(id=ids[0])
        tampered("DELETE FROM tenants_auditentry WHERE id = %s", late.id)
        chain_seal(ENTRIES, now=NOW)
        late.save(force_insert=True)
        chain_seal(ENTRIES, now=NOW + timedelta(minutes=5))
        assert [seal.entries for seal in AuditSeal.objects.order_by("number")] == [
            ids[1:],
            ids[:1],
        ]
        assert faults() == []


def test_what_is_cut_off_the_end_is_found_by_heads_that_were_kept_outside(
    sealed: tuple[Tenant, list[int]], tmp_path: Path
) -> None:
    tenant, ids = sealed
    heads = tmp_path / "heads.json"
    call_command("audit_verify", "--heads", heads, stdout=io.StringIO())
    assert json.loads(heads.read_text())[f"audit/{tenant.id}"].startswith("2:")
    tampered("DELETE FROM tenants_auditseal WHERE entries[1] = %s", ids[3])
    tampered("DELETE FROM tenants_auditentry WHERE id = ANY(%s)", ids[3:])
    assert faults() == []
    with pytest.raises(CommandError, match="its end is gone, there was a seal 2"):
        call_command("audit_verify", "--heads", heads)
    # Building the chain anew does not help.
    written(tenant)
    audit_seal_all(NOW + timedelta(minutes=2))
    with pytest.raises(CommandError, match="seal 2 differs from the one before"):
        call_command("audit_verify", "--heads", heads)


def test_decisions_and_policies_are_chained(db: None) -> None:
    with as_system():
        policy = PolicyVersion.objects.latest("number")
        decision = Decision.objects.create(
            at=NOW,
            leader_term=1,
            policy=policy,
            snapshot=b"in",
            snapshot_sha256="",
            plan=b"out",
            plan_sha256="",
            software="x",
            solve_ms=1,
        )
        assert (chain_seal(DECISIONS, now=NOW), chain_seal(POLICIES, now=NOW)) == (1, 1)
        tampered("UPDATE allocation_decision SET plan = 'else' WHERE id = %s", decision.id)
        tampered("UPDATE allocation_policyversion SET document = '{\"grid\": 1}'")
        wrong = [*chain_verify(DECISIONS), *chain_verify(POLICIES)]
    assert [chain.faults for chain in wrong] == [
        (f"row {decision.id} was changed",),
        (f"row {policy.number} was changed",),
    ]


KEPT = [
    f"{statement} {table}{rest}"
    for table in (
        "tenants_auditentry",
        "tenants_auditseal",
        "allocation_decision",
        "allocation_policyversion",
    )
    for statement, rest in (("DELETE FROM", ""), ("TRUNCATE", " CASCADE"))
] + [
    "UPDATE tenants_auditentry SET detail = '{}'",
    "UPDATE tenants_auditseal SET sealed = now()",
    "UPDATE allocation_decision SET plan = ''",
    "UPDATE allocation_policyversion SET document = '{}'",
    "UPDATE allocation_policyversion SET state = 'draft'",
    "UPDATE allocation_policyversion SET state = 'retired', document = '{\"grid\": 1}'",
]
ONE_OF_EACH = """
INSERT INTO tenants_auditentry (at, action, object_kind, object_id, detail)
  VALUES (now(), 'x', 'x', 'x', '{}');
INSERT INTO tenants_auditseal
  (source, number, entries, marks, previous, digest, through, sealed)
  VALUES ('x', 1, '{}', '', '', '', 0, now());
INSERT INTO allocation_decision (at, leader_term, policy_id, snapshot, snapshot_sha256, plan,
  plan_sha256, software, solve_ms) VALUES (now(), 1, 1, '', '', '', '', '', 0);
SET CONSTRAINTS ALL IMMEDIATE;
"""


@pytest.mark.parametrize("role", ["portal_web", "portal_ops", "portal_system", "portal_owner"])
def test_no_role_changes_or_removes_what_was_written(servers: Servers, owner_dsn: str, role: str) -> None:
    done = []
    with psycopg.connect(servers.dsn("postgres")) as connected:
        connected.execute(ONE_OF_EACH)
        connected.execute(f"SET ROLE {role}")
        for statement in KEPT:
            try:
                with connected.transaction():
                    connected.execute(statement)
                done.append(statement)
            except psycopg.errors.InsufficientPrivilege:
                continue
        connected.rollback()
    assert done == []


@pytest.mark.django_db
def test_the_web_writes_nothing_for_the_platform() -> None:
    with (
        pytest.raises(DatabaseError, match=r"tenant context missing|row-level"),
        transaction.atomic(),
    ):
        audit_record(tenant_id=None, actor_id=None, action="x", target=("x", 1), now=NOW)


def the_log(action: str) -> list[AuditEntry]:
    with as_system():
        return list(AuditEntry.objects.filter(tenant=None, action=action))


@pytest.mark.django_db
def test_operators_names_stand_with_what_they_did() -> None:
    operator: User = an_operator()
    with as_role("portal_ops"):
        audit_record(tenant_id=None, actor_id=operator.id, action="x", target=("node", "n"), now=NOW)
    assert [entry.actor_id for entry in the_log("x")] == [operator.id]
