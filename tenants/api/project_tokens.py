"""What a token that is limited to one project may call. The only place that says so.

A route that is not listed is about the person, the organisation or the site: such a token is
refused there, so a new route is closed until somebody has looked at it. The routes of `IN_PROJECT`
show and change only what `Actor.roles` and `Actor.only_project` allow.
"""

from rest_framework.request import Request

from tenants.access import Actor
from tenants.platform.errors import denied
from tenants.words import refusal_text

# They are the same for everybody. Only their GET is for such a token.
OPEN = frozenset(
    {
        "api-announcements",
        "api-gpu-class",
        "api-gpu-classes",
        "api-gpu-model",
        "api-gpu-models",
        "api-me",
        "api-price-book",
        "api-price-books",
        "api-requirements",
        "api-tier",
        "api-tiers",
        "api-workload",
        "api-workloads",
    }
)

# Operations that are declared as endpoints add themselves.
IN_PROJECT = {
    # The token's own project, its people, programs and messages
    "api-events",
    "api-invitation",
    "api-invitations",
    "api-member",
    "api-project",
    "api-project-members",
    "api-projects",
    "api-service-account",
    "api-service-accounts",
    "api-service-token",
    "api-service-token-rotate",
    "api-service-tokens",
    "api-token",
    "api-token-rotate",
    "api-tokens",
    # Its limits and its money
    "api-budget",
    "api-budget-alerts",
    "api-budgets",
    "api-campaign",
    "api-campaigns",
    "api-focus",
    "api-forecasts",
    "api-held-use",
    "api-lab",
    "api-labs",
    "api-ladder",
    "api-ladder-preview",
    "api-person-quotas",
    "api-quota-window",
    "api-quota-windows",
    "api-quotas",
    "api-spend",
    "api-statement-csv",
    "api-statement-pdf",
    "api-statements",
    "api-tier-versions",
    "api-variance-rule",
    "api-variances",
    # Its bookings
    "api-approval",
    "api-approval-alternative",
    "api-approval-approve",
    "api-approval-counter",
    "api-approval-decline",
    "api-approvals",
    "api-availability",
    "api-booking",
    "api-booking-acknowledge",
    "api-booking-batch",
    "api-booking-cancel",
    "api-booking-change",
    "api-booking-check-in",
    "api-booking-earlier-options",
    "api-booking-events",
    "api-booking-extend",
    "api-booking-more-time",
    "api-booking-release",
    "api-booking-result",
    "api-booking-still-needed",
    "api-booking-undo",
    "api-booking-use",
    "api-booking-why",
    "api-bookings",
    "api-counter-accept",
    "api-counter-decline",
    "api-decision",
    "api-decision-replay",
    "api-decisions",
    "api-quotes",
    "api-series",
    "api-series-cancel",
    "api-series-list",
}

# Ends all tokens of the person.
REFUSED = {("api-tokens", "DELETE")}


def project_check(request: Request, actor: Actor) -> None:
    """Raises Refused `not_allowed` where a token that is limited to one project may not call."""
    if actor.only_project is None:
        return
    match = request.resolver_match
    route, method = (match.url_name or "" if match else ""), request.method or "GET"
    is_read = method in ("GET", "HEAD")
    is_known = route in IN_PROJECT or (route in OPEN and is_read)
    if not is_known or (route, method) in REFUSED:
        raise denied(refusal_text("token_of_project"))
