"""What approval rules add to the core: sentences and words of the log."""

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        (
            "approval_rule_admins_only"
        ): "Only the organisation's admins may change a rule of the whole organisation.",
        "leads_only": "Only leads of the project may do this.",
        "hours_backward": "The hours must end later than they begin.",
        "hours_days_missing": "Choose the days of these hours.",
        "no_condition": "State at least one condition.",
        "bad_steps": "A rule has one or two steps, each of another role.",
        "too_many_rules": "An organisation has at most %(most_rules)s rules. End one first.",
        "condition_out_of_range": "Enter a number above 0 and up to %(most)s.",
        "unknown_zone": "There is no such time zone.",
        "rule_changed": "%(name)s was changed or ended in the meantime. Reload the page, then change it.",
        "bad_step_people": "A step needs 1 to 5 people.",
        "bad_step_hours": "A step takes 1 to %(most_hours)s hours.",
    }
)
ACTIONS["approval_rule.set"] = "set the approval rule {object}"
ACTIONS["approval_rule.changed"] = "changed the approval rule {object}"
ACTIONS["approval_rule.retired"] = "ended the approval rule {object}"
NAMED_BY["approval_rule"] = ("name",)
