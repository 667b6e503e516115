"""Every rule that can refuse, delay or pause a booking: its id, code, owner and evidence.

The solver and the services cite these rules; `allocation.words` says them in sentences. A code and
an id never change their meaning.
"""

from dataclasses import dataclass
from typing import Literal

Check = Literal["together", "line", "quota", "budget", "policy", "hardware"]
Owner = Literal["operator", "tenant_admin", "lead", "asker", "hardware", "others"]
Effect = Literal["refuses", "delays", "both", "explains", "pauses"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `owner` is who can change what it states.

    `evidence` names the facts that every reason of the solver under this rule has, `optional` those
    that a reason may have. `FACTS` defines each of them.
    """

    id: str
    code: str
    check: Check
    owner: Owner
    effect: Effect
    evidence: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


Kind = Literal["amount", "units", "seconds", "instant", "flag", "name", "names", "word"]
FACTS: dict[str, Kind] = {
    "absent": "seconds",
    "ahead": "amount",
    "ahead_units": "units",
    "answers": "flag",
    "asked": "amount",
    "at_risk_from": "instant",
    "because": "word",
    "booking": "name",
    "begun": "flag",
    "borrowed": "units",
    "busy": "flag",
    "conflicts": "amount",
    "cores": "amount",
    "dates": "amount",
    "days": "amount",
    "deadline": "instant",
    "depth": "amount",
    "duration": "seconds",
    "elsewhere": "flag",
    "ends_late": "flag",
    "fee": "amount",
    "first_conflict": "instant",
    "fixed": "amount",
    "gpu_class": "name",
    "gpus": "amount",
    "guaranteed": "units",
    "horizon_seconds": "seconds",
    "idle": "seconds",
    "left": "amount",
    "level": "word",
    "limit": "amount",
    "lost": "seconds",
    "memory": "amount",
    "mode": "word",
    "most": "amount",
    "needs": "amount",
    "node": "name",
    "nodes": "amount",
    "of": "amount",
    "on": "names",
    "open": "amount",
    "out": "amount",
    "own": "units",
    "own_tenant": "flag",
    "owner": "name",
    "pauses": "amount",
    "percent": "amount",
    "pin": "names",
    "pinned": "amount",
    "planned": "flag",
    "position": "amount",
    "possible_until": "instant",
    "problem": "word",
    "profile": "name",
    "promised": "amount",
    "rule": "word",
    "seconds": "seconds",
    "share": "amount",
    "tier": "name",
    "used": "amount",
    "which": "word",
    "whose": "word",
    "why": "name",
    "workload": "name",
}
"""Kind of each fact. `units` are quota units, `instant` is Unix seconds, `names` are separated by
commas, `word` is one of a few that the code knows. Cores and shares are thousandths, memory is MiB.
"""

TEXTS = frozenset({"name", "names", "word"})
"""Kinds whose facts are text; the others are integers."""

RULES: tuple[Rule, ...] = (
    Rule("R1", "unknown_class", "policy", "operator", "refuses", optional=("gpu_class",)),
    Rule("R2", "impossible_profile", "hardware", "hardware", "refuses", ("gpu_class", "profile")),
    Rule("R3", "impossible_together", "together", "hardware", "refuses",
         ("asked", "gpu_class", "level", "most"), optional=("profile", "share")),
    Rule("R4", "too_long", "policy", "operator", "refuses", optional=("asked", "limit")),
    Rule("R5", "gpus_busy", "together", "others", "delays",
         ("asked", "gpu_class", "left", "level"), optional=("planned", "profile", "share")),
    Rule("R6", "line", "line", "others", "delays",
         ("ahead", "ahead_units", "gpu_class", "position"), optional=("of",)),
    Rule("R7", "stronger_claim", "line", "others", "delays"),
    Rule("R8", "tenant_quota", "quota", "operator", "both",
         ("asked", "gpu_class", "limit", "owner"), optional=("used",)),
    Rule("R9", "project_quota", "quota", "tenant_admin", "both",
         ("asked", "gpu_class", "limit", "owner"), optional=("used",)),
    Rule("R10", "budget_exceeded", "budget", "tenant_admin", "refuses", optional=("left", "needs")),
    Rule("R11", "no_budget", "budget", "tenant_admin", "refuses"),
    Rule("R12", "not_enough_gpus", "hardware", "operator", "refuses",
         ("asked", "gpu_class", "most"), optional=("profile",)),
    Rule("R13", "tier_not_allowed", "policy", "tenant_admin", "refuses"),
    Rule("R14", "advance_window", "policy", "operator", "refuses", ("horizon_seconds",)),
    Rule("R15", "window_past", "policy", "asker", "refuses", optional=("begun",)),
    Rule("R16", "deadline_passed", "policy", "asker", "refuses"),
    Rule("R17", "deadline_unreachable", "policy", "asker", "refuses",
         optional=("busy", "duration")),
    Rule("R18", "window_busy", "together", "others", "refuses"),
    Rule("R19", "hardware_out", "hardware", "operator", "both",
         ("out",), optional=("gpu_class", "gpus")),
    Rule("R20", "project_closed", "policy", "tenant_admin", "refuses"),
    Rule("R21", "not_before", "policy", "asker", "delays"),
    Rule("R22", "no_room_in_horizon", "together", "others", "both", ("horizon_seconds",)),
    Rule("R23", "extension_busy", "together", "others", "refuses", ("possible_until",)),
    Rule("R24", "hardware_lost", "hardware", "hardware", "delays", ("lost",)),
    Rule("R25", "overrun", "together", "others", "delays", optional=("ends_late",)),
    Rule("R26", "too_many_bookings", "policy", "operator", "refuses", optional=("limit", "open")),
    Rule("R27", "already_decided", "policy", "others", "refuses"),
    Rule("R28", "too_short", "policy", "operator", "refuses"),
    Rule("R29", "approval_needed", "budget", "lead", "delays"),
    Rule("R30", "mode_fixed", "hardware", "operator", "refuses",
         ("fixed", "gpu_class", "gpus", "mode")),
    Rule("R31", "quota_cut", "quota", "tenant_admin", "delays", ("because",),
         optional=("asked", "borrowed", "days", "gpu_class", "guaranteed",
                   "limit", "own", "owner", "used", "whose")),
    Rule("R32", "no_price", "budget", "operator", "refuses"),
    Rule("R33", "maintenance", "hardware", "operator", "both",
         ("gpus", "which"), optional=("gpu_class",)),
    Rule("R34", "role_needed", "policy", "tenant_admin", "refuses"),
    Rule("R36", "placed", "together", "hardware", "explains",
         ("asked", "gpu_class", "gpus", "nodes", "on"), optional=("profile", "share")),
    Rule("R37", "ask_changed", "policy", "asker", "delays"),
    Rule("R38", "not_live", "policy", "asker", "refuses"),
    Rule("R39", "tenant_closed", "policy", "operator", "refuses"),
    Rule("R40", "class_not_open", "quota", "operator", "refuses"),
    Rule("R41", "guarantee_only", "quota", "tenant_admin", "both",
         ("asked", "gpu_class", "guaranteed", "used")),
    Rule("R42", "lent_out", "quota", "others", "both", ("asked", "borrowed", "gpu_class", "own")),
    Rule("R43", "gpu_hours", "quota", "operator", "both",
         ("asked", "limit", "owner", "used", "whose"), optional=("days",)),
    Rule("R44", "borrowed", "quota", "others", "explains",
         ("borrowed", "own"), optional=("at_risk_from",)),
    Rule("R45", "makes_room", "together", "others", "explains", ("pauses",)),
    Rule("R46", "taken_back", "quota", "others", "pauses", ("lost", "tier"), optional=("whose",)),
    Rule("R47", "higher_tier", "policy", "tenant_admin", "pauses", ("lost", "tier")),
    Rule("R48", "fairer_share", "quota", "others", "pauses", ("lost", "tier")),
    Rule("R49", "room_promised", "line", "others", "refuses"),
    Rule("R50", "extension_while_paused", "policy", "others", "refuses"),
    Rule("R51", "no_more_time", "policy", "operator", "refuses", optional=("limit", "used")),
    Rule("R52", "claim_can_not_wait", "line", "others", "refuses", optional=("possible_until",)),
    Rule("R55", "node_silent", "hardware", "operator", "delays", optional=("node",)),
    Rule("R58", "host_busy", "together", "others", "delays", ("cores", "memory")),
    Rule("R59", "host_too_small", "hardware", "operator", "refuses",
         ("asked", "cores", "gpu_class", "level", "memory", "most")),
    Rule("R60", "share_of_one", "policy", "asker", "refuses", ("asked",)),
    Rule("R62", "hardware_failed", "hardware", "hardware", "delays"),
    Rule("R63", "node_emptied", "hardware", "operator", "delays"),
    Rule("R67", "series_conflict", "together", "asker", "refuses",
         ("conflicts", "first_conflict", "of")),
    Rule("R68", "series_too_long", "policy", "operator", "refuses", optional=("asked", "limit")),
    Rule("R69", "series_overlap", "policy", "asker", "refuses", optional=("dates",)),
    Rule("R70", "no_speed", "policy", "operator", "refuses", optional=("gpu_class", "workload")),
    Rule("R71", "change_gone", "line", "others", "refuses", optional=("promised",)),
    Rule("R72", "class_too_slow", "policy", "asker", "explains",
         ("deadline", "duration", "gpu_class")),
    Rule("R73", "laid_anew", "together", "others", "explains"),
    Rule("R76", "pin_elsewhere", "policy", "asker", "refuses", optional=("gpu_class", "pin")),
    Rule("R77", "pin_too_small", "policy", "asker", "refuses",
         ("asked", "most"), optional=("gpu_class", "level", "pin", "profile", "share")),
    Rule("R78", "pinned", "policy", "asker", "delays", ("elsewhere", "pin")),
    Rule("R79", "pin_out", "hardware", "operator", "both", ("out", "pin")),
    Rule("R80", "none_in_service", "hardware", "operator", "both", ("gpu_class", "gpus", "out")),
    Rule("R81", "moved_together", "together", "operator", "pauses", ("lost",)),
    Rule("R82", "order_stale", "policy", "operator", "refuses", optional=("problem",)),
    Rule("R85", "node_unanswering", "hardware", "operator", "delays",
         optional=("gpu_class", "gpus", "out")),
    Rule("R86", "start_slow", "hardware", "operator", "delays", optional=("answers", "node")),
    Rule("R87", "suspended_there", "hardware", "hardware", "explains"),
    Rule("R88", "change_no_room", "together", "others", "refuses"),
    Rule("R89", "change_weaker", "quota", "others", "refuses"),
    Rule("R90", "change_awaited", "line", "others", "refuses"),
    Rule("R92", "approval_expired", "policy", "lead", "refuses"),
    Rule("R93", "too_many_approvals", "policy", "asker", "refuses", optional=("most",)),
    Rule("R94", "no_approver", "policy", "tenant_admin", "refuses"),
    Rule("R95", "mode_pinned", "hardware", "operator", "refuses",
         ("gpu_class", "gpus", "mode", "pinned")),
    Rule("R96", "mode_change", "hardware", "hardware", "delays",
         ("gpu_class", "gpus", "mode", "seconds")),
    Rule("R97", "approval_too_late", "policy", "asker", "refuses"),
    Rule("R98", "change_begun", "policy", "asker", "refuses"),
    Rule("R99", "dependency_failed", "line", "asker", "refuses", ("booking",)),
    Rule("R100", "overtaken", "line", "others", "delays", ("own_tenant", "rule"),
         optional=("booking",)),
    Rule("R101", "deadline_at_risk", "line", "others", "delays"),
    Rule("R102", "missed", "line", "others", "refuses"),
    Rule("R103", "behind_the_plan", "line", "operator", "delays", ("depth",)),
    Rule("R104", "approval_declined", "policy", "lead", "refuses"),
    Rule("R107", "awaits_booking", "line", "asker", "delays", ("booking",)),
    Rule("R110", "node_conflict", "hardware", "operator", "delays", optional=("node",)),
    Rule("R111", "no_show", "policy", "operator", "refuses", optional=("absent", "fee", "limit")),
    Rule("R112", "own_pause", "policy", "operator", "explains"),
    Rule("R113", "budget_drained", "budget", "tenant_admin", "delays", ("owner", "percent")),
    Rule("R114", "budget_paused", "budget", "tenant_admin", "pauses", ("owner", "percent")),
    Rule("R120", "decisions_frozen", "policy", "operator", "delays"),
    Rule("R130", "idle", "policy", "operator", "pauses", ("idle",)),
    Rule("R131", "too_many_entries", "policy", "asker", "refuses", optional=("most",)),
    Rule("R140", "tier_audience", "policy", "tenant_admin", "refuses"),
    Rule("R141", "shorter_than_tier", "policy", "operator", "refuses"),
    Rule("R142", "too_soon", "policy", "operator", "refuses"),
    Rule("R143", "tier_class", "policy", "tenant_admin", "refuses"),
    Rule("R144", "start_hours", "policy", "tenant_admin", "refuses"),
    Rule("R145", "too_many_open", "policy", "operator", "refuses", optional=("most",)),
    Rule("R146", "too_many_gpus", "policy", "operator", "refuses", optional=("most",)),
    Rule("R147", "mixed_pausable", "policy", "operator", "refuses"),
    Rule("R149", "operator_paused", "policy", "operator", "pauses", ("why",)),
    Rule("R150", "stopped", "policy", "operator", "both", optional=("owner", "why")),
    Rule("R160", "policy_hook_denied", "policy", "tenant_admin", "refuses"),
    Rule("R161", "terms_missing", "policy", "tenant_admin", "refuses"),
    Rule("R162", "training_missing", "policy", "tenant_admin", "refuses"),
    Rule("R170", "lab_quota", "quota", "tenant_admin", "both",
         ("asked", "gpu_class", "limit", "owner"), optional=("used",)),
    Rule("R171", "person_quota", "quota", "tenant_admin", "both",
         ("asked", "gpu_class", "limit"), optional=("used", "whose")),
)  # fmt: skip

UNPROVEN = frozenset(
    {
        "awaits_booking",
        "behind_the_plan",
        "budget_drained",
        "deadline_at_risk",
        "none_in_service",
        "no_room_in_horizon",
        "operator_paused",
        "stopped",
    }
)
"""Codes of a first reason under which no start can be planned: the stored start is an estimate."""

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
