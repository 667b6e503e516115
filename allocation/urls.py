"""Addresses of the timeline, bookings, projects and the fleet: each module brings its own."""

from allocation.web import (
    booking_panel,
    bookings,
    calendars,
    compaction,
    fleet,
    gpu_use,
    home,
    maintenance,
    projects,
    series,
    speeds,
    strangers,
    timeline,
)

urlpatterns = [
    *home.urlpatterns,
    *timeline.urlpatterns,
    *booking_panel.urlpatterns,
    *bookings.urlpatterns,
    *series.urlpatterns,
    *calendars.urlpatterns,
    *speeds.urlpatterns,
    *strangers.urlpatterns,
    *projects.urlpatterns,
    *fleet.urlpatterns,
    *gpu_use.urlpatterns,
    *compaction.urlpatterns,
    *maintenance.urlpatterns,
]
