"""A decision made again from what it stored."""

import json
import os
import re
import subprocess
import sys
import zlib
from datetime import timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from allocation.models import Decision
from allocation.services.bookings.bookings import booking_extend, booking_request
from allocation.services.decide.replay import decision_replay
from tests.builders_allocation import HOUR, NOW, a_lab, a_wish, an_ask
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.services.plant import Plant

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
                actor=lab.actor, request=a_wish(lab.project, ask), now=plant.now
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


def test_every_decision_of_a_day_is_the_same_again_byte_for_byte(
    decisions: list[Decision], real_db: Servers
) -> None:
    assert len(decisions) >= len(ASKS)
    replays = [decision_replay(decision) for decision in decisions]
    assert all(replay.is_equal for replay in replays)
    made_by = (
        rf"commit ({settings.CODE_COMMIT.replace('+', '.')}), numpy .+, OR-Tools 9.+, Python 3.+"
    )
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

    with psycopg.connect(real_db.owner_dsn) as owner:
        rewrite(owner, decisions[0], decisions[-1].plan)
        one, other = (json.loads(zlib.decompress(each.plan)) for each in decisions[1:3])
        rewrite(owner, decisions[1], of_format_1(one))
        rewrite(owner, decisions[2], of_format_1(other, starts=60))
    with as_system():
        output = StringIO()
        call_command("decision_replay", decisions[1].id, stdout=output)
        assert "Same meaning. The plan has format 1" in output.getvalue()
        with pytest.raises(
            CommandError, match=r"Not the same meaning\. The decision was made by commit"
        ):
            call_command("decision_replay", decisions[2].id)
        decision = decisions[0]
        assert decision_replay(decision).comparison == "bytes"
        with pytest.raises(CommandError, match="Not the same bytes"):
            call_command("decision_replay", decision.id)
        with pytest.raises(CommandError, match="no decision 99999"):
            call_command("decision_replay", 99999)
