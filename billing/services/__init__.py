"""The only writers of money. Each call is one transaction or joins the caller's."""

from billing.services.alerts import MAIN_PERCENT, alerts_set, people_named
from billing.services.budgets import budget_labels_set, budget_put, budget_set
from billing.services.campaigns import (
    CampaignMatch,
    campaign_create,
    campaign_match_set,
    campaign_open_set,
    campaign_to_charge,
)
from billing.services.corrections import charge_add, charge_refund
from billing.services.guardrails import Rung, ladder_set
from billing.services.holding.shares import HoldRequest
from billing.services.holds import (
    Charge,
    NewHolds,
    hold_delta_place,
    hold_exchange,
    hold_place,
    hold_release,
    hold_settle,
    hold_settle_partially,
    holds_move,
    holds_place,
    holds_release,
    new_holds_check,
    new_holds_place,
)
from billing.services.ledger import month_close
from billing.services.price_drafts import (
    DraftTerms,
    PriceChange,
    draft_changes,
    is_outdated,
    price_draft_create,
    price_draft_discard,
    price_draft_publish,
    price_draft_rebase,
    price_draft_save,
)
from billing.services.prices import (
    Peaks,
    only_new_check,
    peaks_kept,
    price_book_check,
    price_book_publish,
    price_param,
    setup_param,
    slices_kept,
    slices_of,
)
from billing.services.unit_limits import unit_limit_set
from billing.services.variance_rules import variance_rule_set

__all__ = [
    "MAIN_PERCENT",
    "CampaignMatch",
    "Charge",
    "DraftTerms",
    "HoldRequest",
    "NewHolds",
    "Peaks",
    "PriceChange",
    "Rung",
    "alerts_set",
    "budget_labels_set",
    "budget_put",
    "budget_set",
    "campaign_create",
    "campaign_match_set",
    "campaign_open_set",
    "campaign_to_charge",
    "charge_add",
    "charge_refund",
    "draft_changes",
    "hold_delta_place",
    "hold_exchange",
    "hold_place",
    "hold_release",
    "hold_settle",
    "hold_settle_partially",
    "holds_move",
    "holds_place",
    "holds_release",
    "is_outdated",
    "ladder_set",
    "month_close",
    "new_holds_check",
    "new_holds_place",
    "only_new_check",
    "peaks_kept",
    "people_named",
    "price_book_check",
    "price_book_publish",
    "price_draft_create",
    "price_draft_discard",
    "price_draft_publish",
    "price_draft_rebase",
    "price_draft_save",
    "price_param",
    "setup_param",
    "slices_kept",
    "slices_of",
    "unit_limit_set",
    "variance_rule_set",
]
