"""The scope that each REST endpoint needs. The only place that says so.

A scope limits a token; what the person may do is decided by their roles in any case. `GET` needs
`read` everywhere.
"""

from rest_framework.request import Request

from tenants.models import Scope
from tenants.platform.errors import Refused
from tenants.words import refusal_text

# The scope of the methods other than GET, by the route's name; endpoints add their own. Creating or
# replacing a token needs only `read`, because the new one is never stronger than the one that creates it.
WRITES: dict[str, str] = {
    # The caller
    "api-me": Scope.ADMIN,
    "api-tokens": Scope.READ,
    "api-token": Scope.ADMIN,
    "api-token-rotate": Scope.READ,
    "api-sessions": Scope.ADMIN,
    "api-session": Scope.ADMIN,
    "api-notifications-read": Scope.BOOK,
    "api-notification": Scope.BOOK,
    "api-ops-notification": Scope.FLEET,
    "api-ops-notifications-read": Scope.FLEET,
    "api-notification-settings": Scope.ADMIN,
    "api-announcement-dismiss": Scope.BOOK,
    "api-my-invitation-accept": Scope.ADMIN,
    "api-my-invitation-decline": Scope.ADMIN,
    # Projects and people
    "api-projects": Scope.PROJECT,
    "api-project": Scope.PROJECT,
    "api-invitations": Scope.PROJECT,
    "api-invitation": Scope.PROJECT,
    "api-member": Scope.PROJECT,
    "api-service-accounts": Scope.PROJECT,
    "api-service-account": Scope.PROJECT,
    "api-service-tokens": Scope.PROJECT,
    "api-service-token": Scope.PROJECT,
    "api-service-token-rotate": Scope.PROJECT,
    # Rules of the tenant and the platform
    "api-tenants": Scope.ADMIN,
    "api-person": Scope.ADMIN,
    "api-tier": Scope.ADMIN,
    "api-tier-versions": Scope.ADMIN,
    "api-tier-version-withdraw": Scope.ADMIN,
    "api-labs": Scope.ADMIN,
    "api-lab": Scope.ADMIN,
    "api-lab-leads": Scope.ADMIN,
    "api-lab-lead": Scope.ADMIN,
    "api-person-quotas": Scope.PROJECT,
    "api-quota-windows": Scope.ADMIN,
    "api-quota-window": Scope.ADMIN,
    "api-quotas": Scope.ADMIN,
    "api-policy-versions": Scope.ADMIN,
    # Money
    "api-budgets": Scope.BUDGET,
    "api-budget": Scope.BUDGET,
    "api-ladder": Scope.BUDGET,
    "api-ladder-preview": Scope.BUDGET,
    "api-platform-ladder-preview": Scope.BUDGET,
    "api-platform-budgets": Scope.BUDGET,
    "api-platform-ladder": Scope.BUDGET,
    "api-platform-variance-rule": Scope.BUDGET,
    "api-variance-rule": Scope.BUDGET,
    "api-campaigns": Scope.BUDGET,
    "api-campaign": Scope.BUDGET,
    "api-price-books": Scope.BUDGET,
    "api-price-drafts": Scope.BUDGET,
    "api-price-draft": Scope.BUDGET,
    "api-price-draft-rebase": Scope.BUDGET,
    "api-price-draft-discard": Scope.BUDGET,
    "api-price-draft-publish": Scope.BUDGET,
    "api-corrections": Scope.BUDGET,
    # Bookings. A quote changes nothing.
    "api-quotes": Scope.READ,
    "api-bookings": Scope.BOOK,
    "api-booking": Scope.BOOK,
    "api-booking-batch": Scope.BOOK,
    "api-booking-cancel": Scope.BOOK,
    "api-booking-release": Scope.BOOK,
    "api-booking-extend": Scope.BOOK,
    "api-booking-acknowledge": Scope.BOOK,
    "api-booking-more-time": Scope.BOOK,
    "api-booking-check-in": Scope.BOOK,
    "api-booking-still-needed": Scope.BOOK,
    "api-booking-change": Scope.BOOK,
    "api-booking-undo": Scope.BOOK,
    "api-booking-result": Scope.BOOK,
    "api-approval-approve": Scope.PROJECT,
    "api-approval-decline": Scope.PROJECT,
    "api-approval-counter": Scope.PROJECT,
    "api-counter-accept": Scope.BOOK,
    "api-counter-decline": Scope.BOOK,
    "api-approval-alternative": Scope.BOOK,
    "api-series-list": Scope.BOOK,
    "api-series": Scope.BOOK,
    "api-series-cancel": Scope.BOOK,
    # Hardware and the portal's operation
    "api-gpu-class": Scope.FLEET,
    "api-gpu-model": Scope.FLEET,
    "api-workload": Scope.FLEET,
    "api-node": Scope.FLEET,
    "api-node-drain": Scope.FLEET,
    "api-node-ready": Scope.FLEET,
    "api-node-revoke": Scope.FLEET,
    "api-node-key-rotate": Scope.FLEET,
    "api-node-fence": Scope.FLEET,
    "api-gpu": Scope.FLEET,
    "api-gpu-return": Scope.FLEET,
    "api-maintenance-list": Scope.FLEET,
    "api-maintenance-preview": Scope.FLEET,
    "api-maintenance-one": Scope.FLEET,
    "api-maintenance-one-preview": Scope.FLEET,
    "api-maintenance-end": Scope.FLEET,
    "api-compaction-orders": Scope.FLEET,
    "api-portal-outage": Scope.FLEET,
    "api-portal-outage-close": Scope.FLEET,
    "api-portal-outage-end": Scope.FLEET,
    "api-portal-freeze": Scope.FLEET,
    "api-portal-freeze-end": Scope.FLEET,
    "api-announcements": Scope.FLEET,
    "api-announcement-withdraw": Scope.FLEET,
    "api-failed-message-retry": Scope.FLEET,
    "api-failed-message-dismiss": Scope.FLEET,
    "api-operator-access": Scope.ADMIN,
    "api-operator-access-end": Scope.ADMIN,
    "api-decision-replay": Scope.BOOK,
    "api-bulk-acts": Scope.FLEET,
    "api-bulk-preview": Scope.FLEET,
    "api-stops": Scope.FLEET,
    "api-stop-preview": Scope.FLEET,
    "api-stop-end": Scope.FLEET,
    "api-enrolments": Scope.FLEET,
}
# Ends tokens, so a token that only creates others may not.
DELETE_NEEDS = {"api-tokens": Scope.ADMIN}


def scope_check(request: Request, held: frozenset[str]) -> None:
    """Raises Refused `scope_missing` unless the token has the endpoint's scope."""
    match = request.resolver_match
    needed = scope_of(match.url_name or "" if match else "", request.method or "GET")
    if needed not in held:
        raise Refused(
            "scope_missing",
            refusal_text("scope_missing", needed=needed, held=", ".join(sorted(held))),
            "denied",
        )


def scope_of(route: str, method: str) -> str:
    """The scope of a method of a route; a route that is not in the table needs `admin`."""
    if method in ("GET", "HEAD"):
        return Scope.READ
    if method == "DELETE" and route in DELETE_NEEDS:
        return DELETE_NEEDS[route]
    return WRITES.get(route, Scope.ADMIN)
