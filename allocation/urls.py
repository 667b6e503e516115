"""Addresses of the timeline, bookings, projects and the fleet: each module brings its own."""

from allocation.web import (
    booking_list,
    booking_panel,
    bookings,
    calendars,
    compaction,
    fleet,
    gpu_use,
    home,
    maintenance,
    projects,
    search,
    series,
    speeds,
    strangers,
    timeline,
)

urlpatterns = [
    *home.urlpatterns,
    *search.urlpatterns,
    *timeline.urlpatterns,
    *booking_panel.urlpatterns,
    *booking_list.urlpatterns,
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
