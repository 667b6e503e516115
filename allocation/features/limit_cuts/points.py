"""What limit cuts add to the core: what is above a limit, what stays, their task, and words."""

from allocation.features.limit_cuts import tasks as tasks  # noqa: PLC0414 (registers the task)
from allocation.features.limit_cuts.enforce import pauses_wanted, uses_kept
from allocation.features.limit_cuts.services import cut_apply
from allocation.points import KEPT_USES, ORDERED_PAUSES
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY
from tenants.services.limit_changes import CHANGED

sentences_add(
    {
        "limit_cut_operators": "Operators have set this limit, so only they cancel its cut.",
    }
)
CHANGED.append(cut_apply)
ORDERED_PAUSES.append(pauses_wanted)
KEPT_USES.append(uses_kept)
ACTIONS["limit_cut.set"] = "cut the limit of {object}"
ACTIONS["limit_cut.ended"] = "ended the cut of the limit of {object}"
NAMED_BY["limit_cut"] = ("owner",)
