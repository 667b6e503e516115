"""What the policy hook's settings add to the core: sentences and words of the log."""

from tenants.rules.audit_words import ACTIONS, NAMED_BY
from tenants.words import sentences_add

sentences_add(
    {
        "policy_hook_admins": "Only the organisation's admins can see and change its policy hook.",
        (
            "policy_hook_timeout"
        ): "Enter a time limit of %(timeout_least_ms)s to %(timeout_most_ms)s milliseconds.",
        "policy_hook_busy": "The policy hook can't be tested by this program.",
        "milliseconds": "Enter a whole number of milliseconds.",
    }
)
ACTIONS["policy_hook.set"] = "set the policy hook {object}"
ACTIONS["policy_hook.rotated"] = "made a new secret for the policy hook {object}"
ACTIONS["policy_hook.deleted"] = "deleted the policy hook {object}"
NAMED_BY["policy_hook"] = ("url",)
