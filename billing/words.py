"""The sentences of refusals, by code."""

from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code]) % facts


_SENTENCES: dict[str, Promise] = {
    "budget_overlaps": gettext_lazy(
        "%(budget)s already has a budget for %(period)s. Change that one, or choose days outside it."
    ),
    "budget_below_use": gettext_lazy(
        "%(used)s of this budget are spent or held by bookings; it cannot be lower than that. "
        "Cancel bookings first, or choose a higher amount."
    ),
    "budget_negative": gettext_lazy("A budget can't be negative."),
    "budget_backward": gettext_lazy("The budget must end after it starts."),
    "budget_warning": gettext_lazy("Warn at 1 to 100 percent."),
    "campaign_name": gettext_lazy("A campaign's name needs a letter or a digit."),
    "no_campaign": gettext_lazy("%(project)s has no campaign %(slug)s."),
    "campaign_closed": gettext_lazy(
        "The campaign %(found)s is closed. The project's lead can open it again; a booking without "
        "a campaign works now."
    ),
    "leads_and_admins_only": gettext_lazy("Only the project's leads and the tenant's admins may do this."),
    "campaign_exists": gettext_lazy("%(project)s already has a campaign %(slug)s. Choose another name."),
    "correction_over_budget": gettext_lazy(
        "The budget that paid has %(left)s left. The tenant's admin can raise it."
    ),
    "refund_too_large": gettext_lazy("That is more than was charged."),
    "never_held": gettext_lazy("No money was held for this booking, so no budget can pay."),
    "approval_needed": gettext_lazy(
        "The budget of %(budget)s asks for an approval from %(percent)s %% on, and a change can't "
        "wait for one. Book what is added as a new booking. %(raiser)s can raise the budget or "
        "change its limits."
    ),
    "bookings_stopped": gettext_lazy(
        "%(budget)s has %(share)s %% of its budget for %(period)s %(measured)s, and takes no new "
        "bookings from %(percent)s %% on, and no longer ones. That ends by itself when the share "
        "is lower. %(raiser)s can raise the budget or change its limits."
    ),
    "operators_approve_nothing": gettext_lazy("Operators approve no bookings. Choose another limit."),
    "too_many_rungs": gettext_lazy("A budget has at most %(most_rungs)s alerts and limits."),
    "rung_percent": gettext_lazy("Enter a share from 1 to 200 percent."),
    "unknown_person": gettext_lazy("Nobody who may see this budget has the sign-in name %(names)s."),
    "nobody_named": gettext_lazy("Name at least one person, or choose leads or admins."),
    "unknown_rung": gettext_lazy("Choose one of the values."),
    "unit_rung": gettext_lazy(
        "Spend per unit of progress can notify or pause, in the budget of a campaign with a limit of it."
    ),
    "unit_limit": gettext_lazy(
        "Only the budget of a campaign limits the spend per unit, and a unit has a name."
    ),
    "rung_twice": gettext_lazy("The budget has this alert or limit already."),
    "no_budget": gettext_lazy(
        "%(project)s has no budget from %(day)s %(gap)s on. The tenant's admin can set one%(rest)s."
    ),
    "budget_exceeded": gettext_lazy(
        "%(budget)s has %(left)s left for %(period)s; this needs %(needs)s. %(raiser)s can raise "
        "the budget; a shorter or smaller booking, a cheaper tier or a slice needs less."
    ),
    "month_not_over": gettext_lazy(
        "%(month)s can be closed from %(day)s %(earliest)s on, when the last reports of nodes are in."
    ),
    "month_closed": gettext_lazy("%(month)s is closed already."),
    "draft_outdated": gettext_lazy(
        "Another version was published after this draft was written. Its author rebases it: its "
        "own changes stay, everything else gets the prices of the latest version."
    ),
    "draft_decided": gettext_lazy("This draft is %(state)s already."),
    "second_person_needed": gettext_lazy(
        "You wrote this draft. Another operator checks it and publishes it."
    ),
    "draft_changed": gettext_lazy(
        "The draft was changed after you read it. Check it again, then publish it."
    ),
    "draft_of_another": gettext_lazy(
        "Only its author changes a draft, because another operator publishes it. Write a draft of "
        "your own, or publish this one as it is."
    ),
    "draft_for_slices": gettext_lazy("Write a draft for prices of slices."),
    "draft_for_setup": gettext_lazy("Write a draft to change set-up fees."),
    "draft_for_changed_slices": gettext_lazy("Write a draft to change prices of slices."),
    "draft_for_peaks": gettext_lazy("Write a draft to change peak hours."),
    "price_book_past": gettext_lazy(
        "Prices cannot change in the past. Leave the date empty to publish them now."
    ),
    "price_book_far": gettext_lazy("Prices can be published at most ten years ahead."),
    "price_book_overlaps": gettext_lazy(
        "Version %(version)s is valid from %(date)s %(valid_from)s UTC. Choose a later date."
    ),
    "price_missing": gettext_lazy("Enter exactly one price for %(gpu_class)s in %(tier)s."),
    "bad_peak_hours": gettext_lazy("Enter the hours in which peak prices count."),
    "price_book_raced": gettext_lazy(
        "Somebody else has just published version %(version)s. Check it, then publish yours again."
    ),
    "draft_for_price": gettext_lazy(
        "%(gpu_class)s in %(tier)s has a price already. Write a draft to change it; another "
        "operator publishes it."
    ),
    "bad_price": gettext_lazy("A price must be at least 0 and below one million."),
    "bad_peak_price": gettext_lazy("A peak price must be at least the other price, and below one million."),
    "slice_price_unknown": gettext_lazy("There is no %(gpu_class)s in %(tier)s."),
    "bad_slice_peak": gettext_lazy("A peak price must be at least the other price."),
    "setup_tier_unknown": gettext_lazy("There is no tier %(tier)s."),
    "bad_setup_fee": gettext_lazy("A fee must be at least 0 and below one million."),
    "variance_percent": gettext_lazy("Enter 1 to %(most_percent)s percent, or nothing for no notices."),
    "variance_amount": gettext_lazy("Enter an amount from 0 to below one billion."),
    "level_lab": gettext_lazy("Choose either a lab, or a project with its campaigns and people."),
    "level_project": gettext_lazy("Choose the project of the campaign or person."),
    "level_campaign": gettext_lazy("Choose either a campaign or a person."),
    "budget_admins": gettext_lazy("Only the tenant's admins may set this budget."),
    "budget_leads": gettext_lazy("Only the project's leads and the tenant's admins may set this budget."),
    "period_backward": gettext_lazy("`ends` must be after `starts`."),
    "price_repeated": gettext_lazy("%(gpu_class)s in %(tier)s has two prices."),
    "platform_budget_used": gettext_lazy(
        "The platform's own budget for this time is used up. An operator can raise it. A "
        "shorter booking, or one in another period, may still fit."
    ),
    "platform_budget_stopped": gettext_lazy(
        "The platform's own budget is nearly used, and its limits stop new bookings. They "
        "are possible again when less of it is used, or when an operator raises the budget "
        "or changes its limits."
    ),
    "no_price": gettext_lazy(
        "%(gpu_class)s has no price in the tier %(tier)s now. An operator can publish one."
    ),
    "no_such_campaign": gettext_lazy("There is no such campaign."),
    "month_or_days": gettext_lazy("Choose a month, or a first and a last day."),
    "bad_warning": gettext_lazy("Enter a warning level from 1 to 100 percent."),
    "bad_date": gettext_lazy("Enter a date and time such as 2026-12-01T00:00."),
}
