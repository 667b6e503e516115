"""Addresses of the timeline, bookings, projects and the fleet: each module brings its own."""

from allocation.web import booking_panel, bookings, fleet, home, maintenance, projects, timeline

urlpatterns = [
    *home.urlpatterns,
    *timeline.urlpatterns,
    *booking_panel.urlpatterns,
    *bookings.urlpatterns,
    *projects.urlpatterns,
    *fleet.urlpatterns,
    *maintenance.urlpatterns,
]
