"""A decision made again from what it stored."""

import json
import os
import re
import subprocess
import sys
import zlib
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from allocation.models import Decision
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.decision_log import (
    SOFTWARE,
    DecisionLog,
    decision_chain,
    decision_rebuild,
)
from allocation.services.decide.replay import decision_replay
from solver import Plan, decode, digest, digest_of, encode
from tests.builders_allocation import HOUR, NOW, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.services.plant import Plant

pytestmark = pytest.mark.turn

ASKS = (
    an_ask(profile="2g.20gb"),
    an_ask(profile="3g.40gb", hours=3),
    an_ask(2, starts=NOW + 6 * HOUR),
    an_ask(2, deadline=NOW + 30 * HOUR),
    an_ask(starts=NOW + HOUR),
    an_ask(profile="1g.10gb", count=4, together="gpu", required=True),
    an_ask(hours=5, not_before=NOW + 2 * HOUR),
)


def of_format_1(plan: Any, *, starts: int = 0) -> bytes:  # noqa: ANN401  JSON
    """The plan as format 1 had it, compressed; `starts` moves the first answer."""
    plan.pop("format")
    for row in (*plan["assigns"], *plan["waits"]):
        row["starts"], starts = row["starts"] + starts, 0
        for why in row["reasons"]:
            why["sentence"] = "It is so."
            why["numbers"] = [fact for fact in why["numbers"] if fact[0] != "gpu_class"]
    return zlib.compress(json.dumps(plan, sort_keys=True, separators=(",", ":")).encode())


def rewrite(owner: psycopg.Connection[Any], decision: Decision, plan: Any) -> None:  # noqa: ANN401  bytes of the database
    """Stores another plan; nobody else can change a decision."""
    owner.execute("ALTER TABLE allocation_decision DISABLE TRIGGER append_only")
    owner.execute("UPDATE allocation_decision SET plan = %s WHERE id = %s", [plan, decision.id])
    owner.commit()


@pytest.fixture
def decisions(plant: Plant) -> list[Decision]:
    """A small day: two tenants, every kind of ask, an extension."""
    labs = [a_lab("helix", gpus=0, limit=2), a_lab("northlab", gpus=0)]
    for number, ask in enumerate(ASKS):
        lab = labs[number % 2]
        with as_system():
            booking = booking_request(
                actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now
            )
        plant.later(timedelta(minutes=7))
        with as_system():
            booking.refresh_from_db()
            if booking.state == "active" and booking.planned_ends:
                until = booking.planned_ends + HOUR
                booking_extend(actor=lab.actor, booking=booking, until=until, now=plant.now)
    plant.later(2 * HOUR)
    with as_system():
        return list(Decision.objects.select_related("policy").order_by("id"))


@pytest.mark.long
def test_every_decision_of_a_day_is_the_same_again_byte_for_byte(
    decisions: list[Decision], real_db: Servers
) -> None:
    assert len(decisions) >= len(ASKS)
    with as_system():
        replays = [decision_replay(decision) for decision in decisions]
    assert all(replay.is_equal for replay in replays)
    made_by = rf"commit ({settings.CODE_COMMIT.replace('+', '.')}), numpy .+, Python 3.+"
    assert all(re.fullmatch(made_by, decision.software) for decision in decisions)

    last = str(decisions[-1].id)
    for seed in ("1", "4242"):
        again = subprocess.run(
            [sys.executable, "manage.py", "decision_replay", last],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": real_db.dsn("portal_system"),
                "PYTHONHASHSEED": seed,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert again.returncode == 0, again.stderr
        assert f"replayed {replays[-1].plan_sha256}" in again.stdout
        assert "Same bytes." in again.stdout


def test_decisions_of_older_formats_are_replayed(decisions: list[Decision], real_db: Servers) -> None:
    with as_system():
        older = [as_format_2(decision) for decision in decisions[:3]]
        of_another = as_format_2(decisions[-1]).plan
    with psycopg.connect(real_db.owner_dsn) as owner:
        rewrite(owner, older[0], of_another)
        one, other = (json.loads(zlib.decompress(each.plan)) for each in older[1:])
        rewrite(owner, older[1], of_format_1(one))
        rewrite(owner, older[2], of_format_1(other, starts=60))
    with as_system():
        output = StringIO()
        call_command("decision_replay", older[1].id, stdout=output)
        assert "Same meaning. The plan has format 1" in output.getvalue()
        with pytest.raises(CommandError, match=r"Not the same meaning\. The decision was made by commit"):
            call_command("decision_replay", older[2].id)
        decision = older[0]
        assert decision_replay(decision).comparison == "bytes"
        with pytest.raises(CommandError, match="Not the same bytes"):
            call_command("decision_replay", decision.id)
        with pytest.raises(CommandError, match="no decision 99999"):
            call_command("decision_replay", 99999)


def as_format_2(decision: Decision) -> Decision:
    """A copy of the decision with whole documents, saved."""
    stored = decision_rebuild(decision_chain(decision))
    return Decision.objects.create(
        at=decision.at,
        policy=decision.policy,
        leader_term=0,
        solve_ms=1,
        software=SOFTWARE,
        snapshot=zlib.compress(encode(stored.snapshot)),
        snapshot_sha256=digest(stored.snapshot),
        plan=zlib.compress(stored.plan_bytes),
        plan_sha256=digest_of(stored.plan_bytes),
    )


def test_a_delta_whose_chain_was_changed_is_not_the_same(decisions: list[Decision], real_db: Servers) -> None:
    with as_system():
        chains = [decision_chain(each) for each in decisions]
    last = max(chains, key=len)[-1]
    changed = max(chains, key=len)[1]
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("ALTER TABLE allocation_decision DISABLE TRIGGER append_only")
        owner.execute(
            "UPDATE allocation_decision SET snapshot = (SELECT snapshot FROM allocation_decision"
            " WHERE id = %s) WHERE id = %s",
            [last.id, changed.id],
        )
        owner.commit()
    with as_system(), pytest.raises(CommandError, match=r"Not the same bytes|are damaged"):
        call_command("decision_replay", last.id)


@pytest.mark.long
def test_keyframes_are_rare_and_deltas_small(decisions: list[Decision], plant: Plant) -> None:
    """A keyframe is written at the first turn of a process, once a day, and when deltas outweigh
    it; a process never continues what another has decided meanwhile."""
    assert [each.keyframe_id for each in decisions[:2]] == [None, decisions[0].id]
    deltas = [each for each in decisions if each.keyframe_id is not None]
    assert len(deltas) > len(decisions) // 2
    assert all(each.base_id == each.id - 1 for each in deltas)
    with as_system():
        live = decisions[-1].policy
        stored = decision_rebuild(decision_chain(decisions[-1]))
        plan = decode(Plan, stored.plan_bytes)

        def record(log: DecisionLog, now: datetime) -> Decision:
            made = log.record(stored.snapshot, plan, live, now)
            made.save(force_insert=True)
            log.written(made)
            return made

        mine, others = DecisionLog(), DecisionLog()
        assert record(mine, plant.now).keyframe_id is None
        small = record(mine, plant.now)
        assert small.keyframe_id is not None
        assert len(small.snapshot) + len(small.plan) < 200, "nothing has changed"
        assert record(others, plant.now).keyframe_id is None
        assert record(mine, plant.now).keyframe_id is None, "another process decided meanwhile"
        assert record(mine, plant.now + 25 * HOUR).keyframe_id is None, "a day is over"
        mine.forget()
        assert record(mine, plant.now).keyframe_id is None

        whole, many = record(mine, plant.now), 0
        whole = whole if whole.keyframe_id is None else Decision.objects.get(id=whole.keyframe_id)
        size = len(whole.snapshot) + len(whole.plan)
        while record(mine, plant.now).keyframe_id is not None:
            many += 1
            assert many * 40 < 2 * size, "no keyframe although the deltas outweigh it"
        assert many > 3
