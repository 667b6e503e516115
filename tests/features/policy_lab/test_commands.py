"""Commands of the policy lab: guards by a file, shadows, and trials that are listed and cancelled."""

import json
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from allocation.features.policy_lab.models import PolicyShadow, PolicyTrial
from allocation.features.policy_lab.results import notes_of
from allocation.features.policy_lab.trials import TrialTerms, trial_ask
from allocation.models import PolicyActivation
from allocation.services.policy.policies import policy_draft
from tests.api.builders import Site, a_site
from tests.builders_allocation import NOW
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def drafted() -> int:
    return policy_draft(document={"grid": 600}, now=NOW).number


def test_a_version_goes_into_force_with_the_guard_of_a_file(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "guard.json"
    figure = {"figure": "wait_p95", "tier": "standard", "most": 7_200}
    facts = {"operator": "otto", "waiver": "Nobody else is here.", "stdout": StringIO(), "guard": file}
    with as_owner():
        number = drafted()
        for text, why in (
            (json.dumps({"figurs": []}), "no field figurs"),
            (json.dumps({"figures": [figure | {"most": -1}]}), "greater than or equal to 0"),
            ("{", "guard.json"),
            ("[]", "Expected a dictionary"),
        ):
            file.write_text(text)
            with pytest.raises(CommandError, match=why):
                call_command("policy", activate=number, **facts)
        file.write_text(json.dumps({"hours": 5, "figures": [figure]}))
        call_command("policy", activate=number, **facts)
        made = PolicyActivation.objects.get(version=number)
    assert made.guard["hours"] == 5
    assert made.guard["figures"][0]["most"] == 7_200


@pytest.mark.parametrize("act", ["activate", "approve"])
def test_the_login_of_the_programs_puts_no_version_into_force(site: Site, act: str) -> None:
    with as_system():
        number = drafted()
        with pytest.raises(CommandError, match="DATABASE_URL to that of portal_owner"):
            call_command("policy", operator="otto", **{act: number})
        assert not PolicyActivation.objects.filter(version=number).exists()


def test_a_shadow_is_begun_shown_and_ended(site: Site) -> None:
    text = StringIO()
    with as_system():
        number = drafted()
        call_command("policy_shadow", begin=number, every=3, operator="otto", stdout=text)
        shadow = PolicyShadow.objects.get()
        assert (shadow.every, shadow.started_by_id) == (3, site.people["operator"].pk)
        with pytest.raises(CommandError, match="already"):
            call_command("policy_shadow", begin=number)
        call_command("policy_shadow", show=number, stdout=text)
        call_command("policy_shadow", end=number, stdout=text)
        with pytest.raises(CommandError, match="not in shadow"):
            call_command("policy_shadow", end=number)
        with pytest.raises(CommandError, match="no such policy version"):
            call_command("policy_shadow", show=99)
    assert f"Version {number}, in shadow: 0 decisions, 0 with differences" in text.getvalue()


def test_trials_are_listed_cancelled_and_shown(site: Site) -> None:
    text = StringIO()
    with as_system():
        trial = trial_ask(terms=TrialTerms(candidate=drafted()), operator_id=None, now=NOW)
        call_command("policy_trial", list=True, stdout=text)
        assert str(trial.pk) in text.getvalue()
        with pytest.raises(CommandError, match="waiting"):
            call_command("policy_trial", show=trial.pk)
        call_command("policy_trial", cancel=trial.pk, operator="otto", stdout=text)
        with pytest.raises(CommandError, match="This trial is over"):
            call_command("policy_trial", cancel=trial.pk)
        with pytest.raises(CommandError, match="no such trial"):
            call_command("policy_trial", show=uuid4())
        assert PolicyTrial.objects.get().state == "cancelled"


def test_notes_say_how_repeated_work_was_estimated_and_where_gpus_are_kept_free() -> None:
    rows = [
        {"tier": "flex", "method": "stop", "seconds": 1_230, "pauses": 14, "of": "tier"},
        {"tier": "spot", "method": "suspend", "seconds": 0, "pauses": 1, "of": "nothing"},
    ]
    same = {"repeated": {"active": rows, "candidate": rows}, "headroom_days": {"active": 0, "candidate": 2}}
    first, second = notes_of(same)
    assert first == (
        "In force: a pause of flex repeats 20 min, the mean of 14 pauses of the tier; "
        "a pause of spot repeats no work, because too few past pauses say how much."
    )
    assert second == "Candidate: peaks were foreseen on 2 days, in which GPUs are kept free."
    other = [rows[0] | {"of": "method"}]
    (_, own) = notes_of({"repeated": {"active": rows, "candidate": other}})
    assert own.endswith("14 pauses of all tiers that pause by stop.")
    assert list(notes_of({})) == []
