"""What the policy lab adds to the core: which versions are tried, sentences and words of the log."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from django.urls import reverse

from allocation.features.policy_lab.models import PolicyShadow, PolicyTrial
from allocation.features.policy_lab.results import summary_text
from allocation.points.policies import POLICIES_TRIED, PolicyTried
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS

_SUMMARY = ("bookings", "differs", "totals")


def _tried() -> Mapping[int, PolicyTried]:
    """What is in shadow and on trial at once is shown as on trial. Trials of other fleets say nothing of the
    version alone."""
    trials = PolicyTrial.objects.filter(fleet={})
    stages = dict.fromkeys(
        PolicyShadow.objects.filter(ended_at=None).values_list("version_id", flat=True), "shadow"
    )
    under_way = trials.filter(state__in=PolicyTrial.OPEN).values_list("candidate_id", flat=True)
    stages |= dict.fromkeys(under_way, "trial")
    done = trials.filter(state=PolicyTrial.State.DONE).order_by("candidate", "-finished_at")
    columns = ("candidate", "id", "days", "demand", *(f"report__{name}" for name in _SUMMARY))
    found: dict[int, PolicyTried] = defaultdict(PolicyTried)
    for number, trial_id, days, demand, *parts in done.distinct("candidate").values_list(*columns):
        report = dict(zip(_SUMMARY, parts, strict=True))
        text = summary_text(report, days, is_other_demand=bool(demand))
        href = reverse("ops-policy-trial", kwargs={"trial_id": trial_id})
        found[number] = PolicyTried(trial=text, href=href)
    for number, stage in stages.items():
        found[number] = replace(found[number], stage=stage)
    return found


POLICIES_TRIED.append(_tried)
sentences_add(
    {
        "trial_bounds": "Choose a number from 1 to %(most)s.",
        "trial_demand": "Choose a number from %(least)s to %(most)s percent.",
        "trial_fleet": "Choose a number from %(least)s to %(most)s.",
        "trial_class": "The site has no GPU of the class %(name)s, so nothing says how its nodes are.",
        "trials_open": "%(most)s trials wait or run already. Wait for one, or cancel one.",
        "guard_figures": "Name at least one figure, at most %(most)s.",
        "guard_band": (
            "Say where its band ends: at an amount, at a part of the same time a week before, or at a part of"
            " what a trial forecast."
        ),
        "guard_tier": "There is no tier %(tier)s.",
        "guard_amount": "%(entry)s has no amount. Write such as: pauses 20, wait_p95 4h.",
        "guard_trial": "No trial of this version has forecast %(figure)s. Try it on the past first.",
        "guard_tier_missing": "Say of which tier.",
        "shadow_live": "Version %(number)s is in force, so it decides already.",
        "shadow_already": "Version %(number)s is in shadow already.",
        "shadow_none": "Version %(number)s is not in shadow.",
        "shadows_open": "%(most)s versions are in shadow already. End one of them first.",
        "trial_over": "This trial is over.",
        "trial_attempts": "It was begun %(most)s times and never ended.",
        "trial_not_done": "This trial has no results. It was cancelled, failed, or still runs.",
    }
)
ACTIONS["policy.trial_asked"] = "asked for a trial of policy version {object}"
ACTIONS["policy.shadow_begun"] = "put policy version {object} in shadow"
ACTIONS["policy.shadow_ended"] = "took policy version {object} out of shadow"
ACTIONS["policy.trial_cancelled"] = "cancelled a trial of policy version {object}"
