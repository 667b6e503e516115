"""A trial on the history of the demo: a candidate equal to the version in force differs nowhere."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from allocation.features.policy_lab.models import PolicyTrial
from allocation.features.policy_lab.trials import TrialTerms, trial_ask, trials_run
from allocation.models import PolicyVersion
from allocation.services.policy.policies import policy_draft
from devtools.demo.site import seed
from tests.roles import as_owner, as_role, as_system
from tests.servers.servers import Servers

# Half a minute of processor time for the demo's week.
pytestmark = pytest.mark.long


def test_a_candidate_equal_to_the_live_version_differs_nowhere(real_db: Servers, tmp_path: Path) -> None:
    now = timezone.now().replace(microsecond=0)
    with as_owner():
        seed(now=now, path=tmp_path / "demo.json", url="http://127.0.0.1:8000")
    with as_system():
        live = PolicyVersion.objects.get(state="live")
        number = policy_draft(document=live.document, now=now).number
    with as_role("portal_ops"):
        terms = TrialTerms(candidate=number, days=9, seeds=2)
        trial = trial_ask(terms=terms, operator_id=None, now=now)
    with as_system():
        assert trials_run(lambda: now + timedelta(minutes=1)) == 1
        done = PolicyTrial.objects.get(id=trial.id)
    assert (done.state, done.note) == ("done", "")
    report = done.report
    assert report is not None
    assert report["bookings"] > 100
    totals = report["totals"]["active"]
    assert totals == report["totals"]["candidate"]
    assert totals["started"] > 60
    assert totals["gpu_seconds"] > 0
    assert (report["longer"], report["shorter"]) == ([], [])
    for key in ("tiers", "tenants", "projects"):
        assert report[key]
        for row in report[key]:
            assert (row["active"], row["change"]) == (row["candidate"], 0)
            assert row["effect"] in ("none", "unknown")
