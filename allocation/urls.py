"""Addresses of the timeline, bookings, projects and the fleet: each module brings its own."""

from allocation.features import FEATURES
from allocation.web.approvals import (
    inbox,
    tier_versions_page,
)
from allocation.web.bookings import (
    booking_acts,
    booking_pages,
    list_page,
    series,
    site_booking,
    site_bookings,
)
from allocation.web.bookings.request_panel import panel
from allocation.web.changes import change_page
from allocation.web.decisions import ops_decisions
from allocation.web.decisions import pages as decision_pages
from allocation.web.fleet import (
    compaction,
    fleet_pages,
    gpu_page,
    install,
    maintenance,
    unbooked_processes,
)
from allocation.web.home import personal_steps, projects, search, start_page
from allocation.web.limits import labs_page, quota_pages
from allocation.web.money import (
    budget_page,
    platform_budgets,
    price_drafts,
    statements,
    variances,
)
from allocation.web.site import (
    catalogue,
    corrections,
    failed_messages,
    policy,
    portal_modes,
    site_setup,
    speeds,
    stops,
    tenants,
)
from allocation.web.timeline import site_timeline, timeline_page

urlpatterns = [
    *start_page.urlpatterns,
    *personal_steps.urlpatterns,
    *search.urlpatterns,
    *timeline_page.urlpatterns,
    *site_timeline.urlpatterns,
    *panel.urlpatterns,
    *list_page.urlpatterns,
    *booking_pages.urlpatterns,
    *booking_acts.urlpatterns,
    *change_page.urlpatterns,
    *decision_pages.urlpatterns,
    *ops_decisions.urlpatterns,
    *series.urlpatterns,
    *labs_page.urlpatterns,
    *quota_pages.urlpatterns,
    *tier_versions_page.urlpatterns,
    *inbox.urlpatterns,
    *speeds.urlpatterns,
    *corrections.urlpatterns,
    *site_booking.urlpatterns,
    *site_bookings.urlpatterns,
    *unbooked_processes.urlpatterns,
    *projects.urlpatterns,
    *budget_page.urlpatterns,
    *variances.urlpatterns,
    *statements.urlpatterns,
    *price_drafts.urlpatterns,
    *platform_budgets.urlpatterns,
    *install.urlpatterns,
    *fleet_pages.urlpatterns,
    *catalogue.urlpatterns,
    *site_setup.urlpatterns,
    *gpu_page.urlpatterns,
    *compaction.urlpatterns,
    *maintenance.urlpatterns,
    *portal_modes.urlpatterns,
    *stops.urlpatterns,
    *failed_messages.urlpatterns,
    *tenants.urlpatterns,
    *policy.urlpatterns,
    *FEATURES.urls("page"),
]
