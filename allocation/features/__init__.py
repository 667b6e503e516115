"""Features: each is a folder with its models, services, rules, page, REST and words.

The core knows none of them. A feature adds itself to the points of `allocation.points`, and its
routes and models are found here. Features do not import each other.
"""

from tenants.features import Features

FEATURES = Features(
    __name__,
    "appeals",
    "approval_rules",
    "arrays",
    "calendars",
    "capacity",
    "clusters",
    "datasets",
    "dated_guarantees",
    "demand",
    "disputes",
    "engines",
    "exports",
    "hand_overs",
    "host_use",
    "idle_gpus",
    "insights",
    "jira",
    "limit_cuts",
    "notebooks",
    "operator_roles",
    "overrides",
    "policy_lab",
    "progress",
    "reports",
    "requirements",
    "scripts",
    "stand_ins",
    "tier_guarantees",
    "turn_round",
    "waiting_list",
    "workloads",
    "zones",
)
