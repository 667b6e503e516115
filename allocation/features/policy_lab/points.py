"""What the policy lab adds to the core: which versions are tried, sentences and words of the log."""

from collections.abc import Mapping

from allocation.features.policy_lab.models import PolicyShadow, PolicyTrial
from allocation.points import POLICY_STAGES
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS


def _tried() -> Mapping[int, str]:
    """What is in shadow and on trial at once is shown as on trial."""
    shadows = PolicyShadow.objects.filter(ended_at=None).values_list("version_id", flat=True)
    trials = PolicyTrial.objects.filter(state__in=PolicyTrial.OPEN, fleet={})
    tried = trials.values_list("candidate_id", flat=True)
    return dict.fromkeys(shadows, "shadow") | dict.fromkeys(tried, "trial")


POLICY_STAGES.append(_tried)
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
