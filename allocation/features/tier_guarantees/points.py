"""What guarantees by tier add to the core: sentences and words of the log."""

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "tier_part_no_tiers": "Choose the tiers that these GPUs are for.",
        "tier_uses_no_guarantee": "The tier %(tier)s uses no guarantee.",
        (
            "part_above_guarantee"
        ): "%(tenant)s is guaranteed %(guaranteed)s %(model)s. Choose at most that many.",
    }
)
ACTIONS["tier_guarantee.set"] = "set the tiers of guaranteed GPUs of {object}"
NAMED_BY["tier_guarantee"] = ("gpu_class",)
