"""What dated guarantees add to the core: sentences and words of the log."""

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "dated_step": "A guarantee begins and ends at full five minutes, such as 14:05.",
        "dated_past": "The end is in the past.",
        "dated_starts_past": "The start is in the past. Leave it out to begin now.",
        "dated_backward": "The end has to be after the start.",
        "dated_far": "The end is more than %(days)s days ahead.",
        "dated_no_share": "%(tenant)s has no quota of %(model)s. Set its usual guarantee first; it can be 0.",
        "dated_owner": "Name a project or a lab, not both.",
        "dated_overlaps": (
            "%(gpus)s GPUs are guaranteed from %(starts)s to %(ends)s (UTC) already. End that guarantee "
            "first, or choose other dates."
        ),
        "dated_many": "There are %(most)s such guarantees to come already.",
        "guarantees_above_site": (
            "The site has %(site)s %(model)s, and %(others)s are guaranteed to others at %(at)s (UTC): "
            "at most %(left)s are left."
        ),
    }
)
ACTIONS["dated_guarantee.set"] = "set the guarantee between dates for {object}"
ACTIONS["dated_guarantee.ended"] = "ended the guarantee between dates for {object}"
NAMED_BY["dated_guarantee"] = ("of", "tenant")
