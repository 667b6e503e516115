"""What roles of operators add to the core: sentences, and words of the log."""

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "bad_operator_role": "Choose one of these roles: %(roles)s.",
        "role_given": "%(name)s has the role %(role)s already. End it first to change it.",
        "role_without_names": "The role %(role)s is not limited: leave this empty.",
        "role_names": "This role is limited to %(what)s. Name at least one of: %(known)s.",
        "role_not_waiting": "This role does not wait for an approval any more.",
        "role_second_person": "A third operator approves this role: neither who gave it nor who gets it.",
        (
            "last_site_operator"
        ): "This is the last operator who may do everything. Give the role Site to somebody else first.",
    }
)
ACTIONS["operator_role.asked"] = "asked for the operator's role {object}"
ACTIONS["operator_role.given"] = "gave the operator's role {object}"
ACTIONS["operator_role.ended"] = "ended the operator's role {object}"
NAMED_BY["operator_role"] = ("person",)
