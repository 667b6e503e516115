"""What is old leaves the database for files, and can still be proven and replayed."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from allocation.models import (
    Allocation,
    Booking,
    BookingEvent,
    Decision,
    Gpu,
    Occupancy,
    PolicyVersion,
)
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.storage.archive import (
    ArchiveBroken,
    Limits,
    archive_read,
    archive_write,
    chain_archived,
)
from portal.storage.audit_sources import audit_seal_all
from tenants.audit import audit_record
from tenants.models import ArchiveFile, AuditEntry, Tenant
from tests.builders import a_tenant
from tests.builders_allocation import Lab, a_booking, a_lab, an_allocation
from tests.roles import as_role, as_system

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
OLD = NOW - timedelta(days=500)
BEFORE = NOW - timedelta(days=400)
ALL = Limits(BEFORE, BEFORE, BEFORE)


def archived(folder: Path, limits: Limits = ALL) -> list[ArchiveFile]:
    """As `manage.py archive` does."""
    with as_role("portal_owner"):
        return list(archive_write(folder, limits, NOW))


def faults(*options: str) -> str:
    """What `audit_verify` finds."""
    with as_system():
        try:
            call_command("audit_verify", *options, stdout=io.StringIO())
        except CommandError as error:
            return str(error)
    return ""


def a_decision(
    at: datetime, number: int = 0, base: Decision | None = None, *, by_rows: bool = False
) -> Decision:
    return Decision.objects.create(
        at=at,
        leader_term=1,
        policy=PolicyVersion.objects.get(state="live"),
        snapshot=bytes([number]) * 5000,
        snapshot_sha256="s" * 64,
        plan=b"plan",
        plan_sha256="p" * 64,
        software="test",
        solve_ms=1,
        format=3 if by_rows else 2,
        base=base,
        keyframe_id=None if base is None else base.keyframe_id or base.id,
    )


def decisions(*times: datetime) -> list[Decision]:
    with as_system():
        made = [a_decision(at, number) for number, at in enumerate(times)]
        audit_seal_all(NOW)
    return made


def a_chain(*times: datetime) -> list[Decision]:
    """A keyframe and its deltas."""
    with as_system():
        made = [a_decision(times[0], by_rows=True)]
        for number, at in enumerate(times[1:], start=1):
            made.append(a_decision(at, number, made[-1], by_rows=True))
        audit_seal_all(NOW)
    return made


@pytest.fixture
def logged() -> Iterator[Tenant]:
    """A tenant with three sealed batches of two lines, the first two of them old; and others."""
    tenant, other = a_tenant("one"), a_tenant("two")
    with as_system():
        for day in (0, 1, 450):
            at = OLD + timedelta(days=day)
            for owner in (tenant.id, other.id, None):
                for number in (1, 2):
                    audit_record(
                        tenant_id=owner,
                        actor_id=None,
                        action="thing.done",
                        target=("thing", number),
                        now=at,
                        detail={"day": day},
                    )
            audit_seal_all(at)
        yield tenant


def test_old_decisions_leave_their_bytes_in_a_file_and_their_chain_holds(tmp_path: Path) -> None:
    old, young = decisions(OLD, NOW)
    before = bytes(old.snapshot)
    (file,) = archived(tmp_path)
    assert (file.kind, file.rows, file.name) == (
        "decisions",
        1,
        f"decisions-{old.id}-{old.id}.jsonl.gz",
    )
    with as_system():
        old.refresh_from_db()
        young.refresh_from_db()
        assert (bytes(old.snapshot), bytes(old.plan), old.archived_in) == (b"", b"", file.name)
        assert bytes(young.snapshot) != b""
        (found,) = chain_archived(tmp_path, old)
        assert (bytes(found.snapshot), bytes(found.plan)) == (before, b"plan")
        with pytest.raises(CommandError, match=r"is archived in.*--archive"):
            call_command("decision_replay", old.id)
    assert faults() == ""
    assert archived(tmp_path) == [], "what moved is not moved again"


def test_a_keyframe_moves_with_its_last_delta_and_never_before_it(tmp_path: Path) -> None:
    young = a_chain(OLD, OLD + timedelta(hours=1), NOW)
    assert archived(tmp_path) == []
    with as_system():
        for _ in range(60):
            young.append(a_decision(OLD, 7, young[-1], by_rows=True))
    old = a_chain(OLD, *([OLD + timedelta(hours=1)] * 60))
    (file,) = archived(tmp_path)
    with as_system():
        assert file.rows == len(old)
        chain = chain_archived(tmp_path, Decision.objects.get(id=old[2].id))
        assert [(each.id, bytes(each.snapshot)[:1]) for each in chain] == [
            (each.id, bytes(each.snapshot)[:1]) for each in old[:3]
        ]
    assert faults() == ""


def test_the_database_keeps_a_keyframe_while_a_delta_needs_it() -> None:
    first, second, third = a_chain(OLD, OLD, NOW)
    other, *_ = a_chain(OLD, OLD)

    def archive(*ids: int) -> str:
        values = ", ".join(f"{name} = {value}" for name, value in MOVE.items())
        listed = ", ".join(map(str, ids))
        update = f"UPDATE allocation_decision SET {values} WHERE id IN ({listed})"  # noqa: S608
        return refusal("portal_owner", f"{update}; SET CONSTRAINTS ALL IMMEDIATE")

    assert "needs the bytes" in archive(first.id)
    assert "needs the bytes" in archive(second.id)
    assert archive(first.id, second.id, third.id) == ""

    def follow(base: Decision, keyframe: Decision) -> str:
        columns = "at, leader_term, policy_id, snapshot, snapshot_sha256, plan, plan_sha256, "
        columns += "software, solve_ms, format"
        copy = (
            f"INSERT INTO allocation_decision ({columns}, base_id, keyframe_id)"  # noqa: S608
            f" SELECT {columns}, {base.id}, {keyframe.id} FROM allocation_decision"
            f" WHERE id = {base.id}"
        )
        return refusal("portal_system", copy)

    assert follow(third, first) == ""
    assert "does not follow" in follow(third, other), "another keyframe's"
    assert "unique" in follow(second, first), "two deltas of one base"


MOVE = {
    "archived_in": "'f'",
    "snapshot": "''",
    "plan": "''",
    "snapshot_archived": "encode(sha256(snapshot), 'hex')",
    "plan_archived": "encode(sha256(plan), 'hex')",
}


def refusal(role: str, command: str, archiving: str = "on") -> str:
    """What the database says against it, or nothing; undone in any case."""
    with as_role(role):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL portal.archiving = '{archiving}'")
                cursor.execute(command)
                transaction.set_rollback(True)
        except DatabaseError as error:
            return str(error)
    return ""


def moved(role: str, archiving: str = "on", **changes: str) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in (MOVE | changes).items())
    return refusal(role, f"UPDATE allocation_decision SET {values}", archiving)  # noqa: S608


def test_of_a_decision_nothing_else_can_change_not_even_while_archiving() -> None:
    decisions(OLD)
    assert moved("portal_owner") == ""
    for change in (
        {"snapshot": "'x'"},
        {"software": "'x'"},
        {"plan_archived": "repeat('0', 64)"},
        {"archived_in": "''"},
    ):
        assert "append-only" in moved("portal_owner", **change), change
    assert "append-only" in moved("portal_owner", "off")
    assert "permission denied" in moved("portal_system")
    assert "append-only" in refusal("portal_owner", "DELETE FROM allocation_decision")


def test_lines_of_the_log_go_by_seals_and_the_files_are_checked_as_the_rows(
    logged: Tenant, tmp_path: Path
) -> None:
    files = archived(tmp_path)
    assert [(file.kind, file.rows, file.last_seal) for file in files] == [("log", 4, 2)] * 3
    with as_system():
        assert AuditEntry.objects.filter(action="thing.done", at__lt=BEFORE).count() == 0
        assert AuditEntry.objects.filter(action="thing.done").count() == 6
    assert faults() == ""
    assert faults("--archive", str(tmp_path)) == ""
    # What is still there is guarded as before.
    with as_role("portal_owner"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL portal.archiving = 'on'")
        cursor.execute("DELETE FROM tenants_auditentry WHERE tenant_id = %s RETURNING id", [logged.id])
        gone = [key for (key,) in cursor.fetchall()]
    named = [f"audit/{logged.id}: row {key} is gone" for key in gone]
    assert sorted(faults().splitlines()) == sorted(named)


def test_a_file_that_was_changed_or_lost_is_named(logged: Tenant, tmp_path: Path) -> None:
    first, second, *_ = archived(tmp_path)
    path = tmp_path / second.name
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ArchiveBroken, match=f"{second.name} was changed"):
        list(archive_read(tmp_path, second))
    assert faults("--archive", str(tmp_path)) == f"{second.name} was changed"
    for file in (first, second):
        (tmp_path / file.name).unlink()
    assert "is not in" in faults("--archive", str(tmp_path))


def test_the_log_and_the_list_of_files_stay_closed_to_everybody_else(logged: Tenant, tmp_path: Path) -> None:
    archived(tmp_path)
    line, file = "DELETE FROM tenants_auditentry", "DELETE FROM tenants_archivefile"
    for role in ("portal_system", "portal_ops", "portal_web"):
        assert "permission denied" in refusal(role, line), role
        assert "permission denied" in refusal(role, file), role
    assert "append-only" in refusal("portal_owner", line, "off")
    assert "append-only" in refusal("portal_owner", file)
    assert "append-only" in refusal("portal_owner", "UPDATE tenants_auditentry SET action = 'x'")


def ended(lab: Lab, at: datetime) -> Booking:
    booking = a_booking(lab.project, lab.actor.user_id, state="ended", starts=at, now=at)
    with as_system():
        Booking.objects.filter(id=booking.id).update(ended_at=at)
        row = an_allocation(booking, Gpu.objects.get(), starts=at, ends=at + timedelta(hours=1))
        Allocation.objects.filter(id=row.id).update(state="ended")
        Occupancy.objects.create(
            allocation=row, gpu=row.gpu, slots=row.slots, opened=at, closed=at + timedelta(hours=1)
        )
        event_add(booking, kind="ended", sentence=event_text("time_over"), now=at)
    return booking


def test_histories_of_bookings_that_ended_go_and_the_bookings_stay(tmp_path: Path) -> None:
    lab = a_lab("lab", gpus=1)
    old, young = ended(lab, OLD), ended(lab, NOW)
    (file,) = archived(tmp_path)
    rows = list(archive_read(tmp_path, file))
    assert [row["what"] for row in rows] == ["event", "occupancy"]
    assert (rows[0]["sentence"], rows[0]["booking_id"]) == (
        "Its time is over; the GPUs are being cleared.",
        str(old.id),
    )
    with as_system():
        left = BookingEvent.objects.values_list("booking_id", flat=True)
        assert set(left) == {young.id}
        assert Occupancy.objects.get().allocation.booking_id == young.id
        assert Booking.objects.filter(id__in=[old.id, young.id]).count() == 2
    assert archived(tmp_path) == []


def test_the_command_says_what_it_wrote_and_keeps_a_week_at_least(logged: Tenant, tmp_path: Path) -> None:
    said = io.StringIO()
    with as_role("portal_owner"):
        call_command("archive", "--to", str(tmp_path), "--log-days", "never", stdout=said)
        assert said.getvalue() == "Nothing is old enough.\n"
        with pytest.raises(CommandError, match="at least 7 days"):
            call_command("archive", "--to", str(tmp_path), "--log-days=1", stdout=said)
        call_command("archive", "--to", str(tmp_path), stdout=said)
    assert said.getvalue().count("4 rows") == 3
