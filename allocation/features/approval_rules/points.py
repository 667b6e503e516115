"""What approval rules add to the core: sentences and words of the log."""

from django.utils.translation import gettext_lazy

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "approval_rule_admins_only": gettext_lazy(
            "Only the organisation's admins may change a rule of the whole organisation."
        ),
        "leads_only": gettext_lazy("Only leads of the project may do this."),
        "hours_backward": gettext_lazy("The hours must end later than they begin."),
        "hours_days_missing": gettext_lazy("Choose the days of these hours."),
        "no_condition": gettext_lazy("State at least one condition."),
        "bad_steps": gettext_lazy("A rule has one or two steps, each of another role."),
        "too_many_rules": gettext_lazy("An organisation has at most %(most_rules)s rules. End one first."),
        "condition_out_of_range": gettext_lazy("Enter a number above 0 and up to %(most)s."),
        "unknown_zone": gettext_lazy("There is no such time zone."),
        "rule_changed": gettext_lazy(
            "%(name)s was changed or ended in the meantime. Reload the page, then change it."
        ),
        "bad_step_people": gettext_lazy("A step needs 1 to 5 people."),
        "bad_step_hours": gettext_lazy("A step takes 1 to %(most_hours)s hours."),
    }
)
ACTIONS["approval_rule.set"] = "set the approval rule {object}"
ACTIONS["approval_rule.changed"] = "changed the approval rule {object}"
ACTIONS["approval_rule.retired"] = "ended the approval rule {object}"
NAMED_BY["approval_rule"] = ("name",)
