"""Every rule that can refuse, delay or pause a booking: id, whose it is, how it is said.

Refusals, reasons and receipts cite the id; codes never change their meaning. The solver's own
table must agree with this one (tests compare them).
"""

from dataclasses import dataclass
from typing import Literal

Check = Literal["together", "line", "quota", "budget", "policy", "hardware"]
Owner = Literal["operator", "tenant_admin", "lead", "asker", "hardware", "others"]
Effect = Literal["refuses", "delays", "both", "explains", "pauses"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `owner` is who can change it; `wording` what it means in one sentence.

    `evidence` names the numbers that a reason citing it may carry.
    """

    id: str
    code: str
    check: Check
    owner: Owner
    effect: Effect
    wording: str
    evidence: tuple[str, ...] = ()


RULES: tuple[Rule, ...] = (
    Rule("R1", "unknown_class", "policy", "operator", "refuses",
         "The GPU class must be one that the fleet has."),
    Rule("R2", "impossible_profile", "hardware", "hardware", "refuses",
         "The slice must be one that GPUs of the class can make."),
    Rule("R3", "impossible_together", "together", "hardware", "refuses",
         "What must lie together has to fit in one group of the hardware.", ("asked", "most")),
    Rule("R4", "too_long", "policy", "operator", "refuses",
         "A tier sets how long one booking may be.", ("asked", "limit")),
    Rule("R5", "gpus_busy", "together", "others", "delays",
         "Enough GPUs must be free together for the whole time.", ("asked", "free", "group")),
    Rule("R6", "line", "line", "others", "delays",
         "Bookings ahead in line have their room reserved first.",
         ("ahead", "ahead_units", "of", "position")),
    Rule("R7", "stronger_claim", "line", "others", "delays",
         "A stronger claim takes the room first."),
    Rule("R8", "tenant_quota", "quota", "operator", "both",
         "An organisation uses of a class what it is guaranteed and may borrow, at every instant.",
         ("asked", "limit", "owner", "used")),
    Rule("R9", "project_quota", "quota", "tenant_admin", "both",
         "A project uses of a class what it is guaranteed and may borrow, at every instant.",
         ("asked", "limit", "owner", "used")),
    Rule("R10", "budget_exceeded", "budget", "tenant_admin", "refuses",
         "The price must fit in what the budget has left.", ("left", "needs")),
    Rule("R11", "no_budget", "budget", "tenant_admin", "refuses",
         "A project needs a budget that covers the time of the booking."),
    Rule("R12", "not_enough_gpus", "hardware", "operator", "refuses",
         "No more can be asked for than the fleet has.", ("asked", "most")),
    Rule("R13", "tier_not_allowed", "policy", "tenant_admin", "refuses",
         "The tier must be open to the project."),
    Rule("R14", "advance_window", "policy", "operator", "refuses",
         "Bookings are planned only so far ahead.", ("horizon_seconds",)),
    Rule("R15", "window_past", "policy", "asker", "refuses",
         "A window must lie in the future."),
    Rule("R16", "deadline_passed", "policy", "asker", "refuses",
         "A deadline must lie in the future."),
    Rule("R17", "deadline_unreachable", "policy", "asker", "refuses",
         "The booking must end before its deadline.", ("duration",)),
    Rule("R18", "window_busy", "together", "others", "refuses",
         "A fixed window must be free for the whole time."),
    Rule("R19", "hardware_out", "hardware", "operator", "both",
         "GPUs out of service take no new work.", ("gpus", "out")),
    Rule("R20", "project_closed", "policy", "tenant_admin", "refuses",
         "The project must be open."),
    Rule("R21", "not_before", "policy", "asker", "delays",
         "A booking does not start before its own wish."),
    Rule("R22", "no_room_in_horizon", "together", "others", "both",
         "A start must be found as far ahead as bookings are planned.", ("horizon_seconds",)),
    Rule("R23", "extension_busy", "together", "others", "refuses",
         "An extension may not take room that others have.", ("possible_until",)),
    Rule("R24", "hardware_lost", "hardware", "hardware", "delays",
         "A planned start moves when its GPUs are lost.", ("lost",)),
    Rule("R25", "overrun", "together", "others", "delays",
         "A planned start moves when its place is not given back in time."),
    Rule("R26", "too_many_bookings", "policy", "operator", "refuses",
         "A project may have only so many open bookings.", ("limit", "open")),
    Rule("R27", "already_decided", "policy", "others", "refuses",
         "What has been decided is not decided again."),
    Rule("R28", "too_short", "policy", "operator", "refuses",
         "A booking needs time left to run."),
    Rule("R29", "approval_needed", "budget", "lead", "delays",
         "The booking waits until somebody has approved it."),
    Rule("R30", "mode_fixed", "hardware", "operator", "refuses",
         "GPUs that are fixed to whole or sliced are given only so."),
    Rule("R31", "quota_cut", "quota", "tenant_admin", "delays",
         "A planned start moves when a limit was lowered below it."),
    Rule("R32", "no_price", "budget", "operator", "refuses",
         "The class must have a price at the time of the booking."),
    Rule("R33", "maintenance", "hardware", "operator", "both",
         "Maintenance keeps GPUs free of bookings.", ("gpus",)),
    Rule("R34", "role_needed", "policy", "tenant_admin", "refuses",
         "Booking needs a role in the project."),
    Rule("R35", "extension_pending", "policy", "asker", "refuses",
         "One extension is decided at a time."),
    Rule("R36", "placed", "together", "hardware", "explains",
         "It fits; the tightest group was taken first.", ("gpus", "nodes")),
    Rule("R37", "ask_changed", "policy", "asker", "delays",
         "A planned start is made anew when the ask has changed."),
    Rule("R38", "not_live", "policy", "asker", "refuses",
         "Only what is planned or running can be extended."),
    Rule("R39", "tenant_closed", "policy", "operator", "refuses",
         "The organisation must be open."),
    Rule("R40", "class_not_open", "quota", "tenant_admin", "refuses",
         "The project must have quota for the class."),
    Rule("R41", "guarantee_only", "quota", "tenant_admin", "both",
         "A tier that is never paused stays within guarantees; only what may be paused borrows.",
         ("asked", "guaranteed", "used")),
    Rule("R42", "lent_out", "quota", "others", "both",
         "Only so much can be borrowed as others leave idle and lend.",
         ("asked", "borrowed", "own")),
    Rule("R43", "gpu_hours", "quota", "operator", "both",
         "An owner stays under its cap of GPU-hours.", ("asked", "limit", "owner", "used")),
    Rule("R44", "borrowed", "quota", "others", "explains",
         "What is borrowed may be paused when those who lend it need it.",
         ("at_risk_from", "borrowed", "own")),
    Rule("R45", "makes_room", "together", "others", "explains",
         "A stronger claim starts when paused bookings have made room.", ("pauses",)),
    Rule("R46", "taken_back", "quota", "others", "pauses",
         "What is borrowed is given back when who is guaranteed it needs it.", ("lost", "tier")),
    Rule("R47", "higher_tier", "policy", "tenant_admin", "pauses",
         "In an organisation a higher tier may have a lower one paused.", ("lost", "tier")),
    Rule("R48", "fairer_share", "quota", "others", "pauses",
         "Who borrows less may have who borrows more paused, while that makes it more even.",
         ("lost", "tier")),
    Rule("R49", "room_promised", "line", "others", "refuses",
         "A booking is not extended once its room is needed for a stronger claim."),
    Rule("R50", "extension_while_paused", "policy", "others", "refuses",
         "What pauses or is paused keeps the end that it has."),
    Rule("R51", "no_more_time", "policy", "operator", "refuses",
         "A tier says how often and for how long a pause can be put off.", ("limit", "used")),
    Rule("R52", "claim_can_not_wait", "line", "others", "refuses",
         "A pause is put off only for a claim that can start later.", ("possible_until",)),
    Rule("R55", "node_silent", "hardware", "operator", "delays",
         "A booking that may run elsewhere is begun anew when its node is cut off."),
    Rule("R58", "host_busy", "together", "others", "delays",
         "The node must have the host cores and the memory free, too.", ("cores", "memory")),
    Rule("R59", "host_too_small", "hardware", "operator", "refuses",
         "No more host cores and memory can be asked for than nodes have.",
         ("asked", "cores", "memory", "most")),
    Rule("R60", "share_of_one", "policy", "asker", "refuses",
         "A share is a part of one whole GPU: neither of several nor of a slice.", ("asked",)),
    Rule("R62", "hardware_failed", "hardware", "hardware", "delays",
         "A booking whose hardware fails starts again, and pays nothing for the run that broke."),
    Rule("R63", "node_emptied", "hardware", "operator", "delays",
         "What still runs when a node must be empty starts again elsewhere and pays once."),
    Rule("R67", "series_conflict", "together", "asker", "refuses",
         "Of a series all dates are had or none, unless its asker takes a part.",
         ("conflicts", "first_conflict", "of")),
    Rule("R68", "series_too_long", "policy", "operator", "refuses",
         "A series has so many dates at most, all of them as far ahead as bookings are planned.",
         ("asked", "limit")),
    Rule("R69", "series_overlap", "policy", "asker", "refuses",
         "The dates of a series may not overlap each other.", ("dates",)),
    Rule("R70", "no_speed", "policy", "operator", "refuses",
         "Work goes to classes whose speed for its kind the operator has stated.",
         ("gpu_class", "workload")),
    Rule("R71", "change_gone", "line", "others", "refuses",
         "A booking is changed only for what still starts earlier than it was promised.",
         ("promised",)),
    Rule("R72", "class_too_slow", "policy", "asker", "explains",
         "A class on which work would end after its deadline is left out.",
         ("deadline", "duration")),
    Rule("R80", "none_in_service", "hardware", "operator", "both",
         "Nothing is planned on a class of which too few GPUs are in service; it waits for them.",
         ("gpus", "out")),
)  # fmt: skip

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
