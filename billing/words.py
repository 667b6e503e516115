"""The sentences of refusals, by code."""

from typing import Any

from tenants.platform.nouns import Sentence


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code]) % facts


_SENTENCES: dict[str, Sentence] = {
    (
        "budget_overlaps"
    ): "%(budget)s already has a budget for %(period)s. Change that one, or choose days outside it.",
    "budget_below_use": (
        "%(used)s of this budget are spent or held by bookings; it cannot be lower than that. "
        "Cancel bookings first, or choose a higher amount."
    ),
    "budget_negative": "A budget can't be negative.",
    "budget_backward": "The budget must end after it starts.",
    "budget_warning": "Warn at 1 to 100 percent.",
    "campaign_name": "A campaign's name needs a letter or a digit.",
    "no_campaign": "%(project)s has no campaign %(slug)s.",
    "campaign_closed": (
        "The campaign %(found)s is closed. The project's lead can open it again; a booking without "
        "a campaign works now."
    ),
    "leads_and_admins_only": "Only the project's leads and the organisation's admins may do this.",
    "campaign_exists": "%(project)s already has a campaign %(slug)s. Choose another name.",
    "correction_over_budget": "The budget that paid has %(left)s left. An admin can raise it.",
    "refund_too_large": "That is more than was charged.",
    "never_held": "No money was held for this booking, so no budget can pay.",
    "approval_needed": (
        "The budget of %(budget)s asks for an approval from %(percent)s %% on, and a change can't "
        "wait for one. Book what is added as a new booking. %(raiser)s can raise the budget or "
        "change its limits."
    ),
    "bookings_stopped": (
        "%(budget)s has %(share)s %% of its budget for %(period)s %(measured)s, and takes no new "
        "bookings from %(percent)s %% on, and no longer ones. That ends by itself when the share "
        "is lower. %(raiser)s can raise the budget or change its limits."
    ),
    "operators_approve_nothing": "Operators approve no bookings. Choose another limit.",
    "too_many_rungs": "A budget has at most %(most_rungs)s alerts and limits.",
    "rung_percent": "Enter a share from 1 to 200 percent.",
    "unknown_person": "Nobody who may see this budget has the sign-in name %(names)s.",
    "nobody_named": "Name at least one person, or choose leads or admins.",
    "unknown_rung": "Choose one of the values.",
    (
        "unit_rung"
    ): "Spend per unit of progress can notify or pause, in the budget of a campaign with a limit of it.",
    "unit_limit": "Only the budget of a campaign limits the spend per unit, and a unit has a name.",
    "rung_twice": "The budget has this alert or limit already.",
    "no_budget": "%(project)s has no budget from %(since)s %(until)s. An admin can set one%(rest)s.",
    "budget_exceeded": (
        "%(budget)s has %(left)s left for %(period)s; this needs %(needs)s. %(raiser)s can raise "
        "the budget; a shorter or smaller booking, a cheaper tier or a slice needs less."
    ),
    (
        "month_not_over"
    ): "%(month)s can be closed from %(day)s %(earliest)s on, when the last reports of nodes are in.",
    "month_closed": "%(month)s is closed already.",
    "draft_outdated": (
        "Another version was published after this draft was written. Its author rebases it: its "
        "own changes stay, everything else gets the prices of the latest version."
    ),
    "draft_decided": "This draft is %(state)s already.",
    "second_person_needed": "You wrote this draft. Another operator checks it and publishes it.",
    "draft_changed": "The draft was changed after you read it. Check it again, then publish it.",
    "draft_of_another": (
        "Only its author changes a draft, because another operator publishes it. Write a draft of "
        "your own, or publish this one as it is."
    ),
    "draft_for_slices": "Write a draft for prices of slices.",
    "draft_for_setup": "Write a draft to change set-up fees.",
    "draft_for_changed_slices": "Write a draft to change prices of slices.",
    "draft_for_peaks": "Write a draft to change peak hours.",
    "price_book_past": "Prices cannot change in the past. Leave the date empty to publish them now.",
    "price_book_far": "Prices can be published at most ten years ahead.",
    (
        "price_book_overlaps"
    ): "Version %(version)s is valid from %(date)s %(valid_from)s UTC. Choose a later date.",
    "currency_unknown": "Choose a currency of %(choices)s.",
    "price_missing": "Enter exactly one price for %(gpu_class)s in %(tier)s.",
    "bad_peak_hours": "Enter the hours in which peak prices count.",
    (
        "price_book_raced"
    ): "Somebody else has just published version %(version)s. Check it, then publish yours again.",
    "draft_for_price": (
        "%(gpu_class)s in %(tier)s has a price already. Write a draft to change it; another "
        "operator publishes it."
    ),
    "bad_price": "A price must be at least 0 and below one million.",
    "bad_peak_price": "A peak price must be at least the other price, and below one million.",
    "slice_price_unknown": "There is no %(gpu_class)s in %(tier)s.",
    "bad_slice_peak": "A peak price must be at least the other price.",
    "setup_tier_unknown": "There is no tier %(tier)s.",
    "bad_setup_fee": "A fee must be at least 0 and below one million.",
    "variance_percent": "Enter 1 to %(most_percent)s percent, or nothing for no notices.",
    "variance_amount": "Enter an amount from 0 to below one billion.",
    "level_lab": "Choose either a lab, or a project with its campaigns and people.",
    "level_project": "Choose the project of the campaign or person.",
    "level_campaign": "Choose either a campaign or a person.",
    "budget_admins": "Only the organisation's admins may set this budget.",
    "budget_leads": "Only the project's leads and the organisation's admins may set this budget.",
    "period_backward": "`ends` must be after `starts`.",
    "price_repeated": "%(gpu_class)s in %(tier)s has two prices.",
    "platform_budget_used": (
        "The platform's own budget for this time is used up. An operator can raise it. A "
        "shorter booking, or one in another period, may still fit."
    ),
    "platform_budget_stopped": (
        "The platform's own budget is nearly used, and its limits stop new bookings. They "
        "are possible again when less of it is used, or when an operator raises the budget "
        "or changes its limits."
    ),
    "no_price": "%(gpu_class)s has no price in the tier %(tier)s now. An operator can publish one.",
    "no_such_campaign": "There is no such campaign.",
    "month_or_days": "Choose a month, or a first and a last day.",
    "bad_warning": "Enter a warning level from 1 to 100 percent.",
    "bad_date": "Enter a date and time such as 2026-12-01T00:00.",
}
