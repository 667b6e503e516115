"""What webhooks add to the core: sentences and words of the log."""

from tenants.rules.audit_words import ACTIONS, NAMED_BY
from tenants.words import sentences_add

sentences_add(
    {
        "too_many_webhooks": "At most %(max_webhooks)s webhooks are possible. Delete one first.",
        "too_many_messages": "There are more than %(max_resent)s messages. Choose a later time.",
        "webhook_disabled": "This webhook is off. Switch it on first.",
        "webhook_events": "Choose 1 to %(max_patterns)s events.",
        "webhook_admins_only": "Only the organisation's admins can choose events of all projects.",
        "webhook_owners": "Only the organisation's admins and the leads of its projects can have webhooks.",
    }
)
ACTIONS["webhook.changed"] = "changed the webhook {object}"
ACTIONS["webhook.created"] = "created the webhook {object}"
ACTIONS["webhook.deleted"] = "deleted the webhook {object}"
ACTIONS["webhook.disabled"] = "switched off the webhook {object}"
ACTIONS["webhook.enabled"] = "switched on the webhook {object}"
ACTIONS["webhook.resent"] = "sent messages of the webhook {object} again"
ACTIONS["webhook.rotated"] = "made a new secret for the webhook {object}"
NAMED_BY["webhook"] = ("name",)
