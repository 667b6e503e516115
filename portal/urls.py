"""All routes, collected from the apps."""

from django.urls import include, path

urlpatterns = [
    path("", include("portal.web.urls")),
    path("", include("portal.api.urls")),
    path("", include("tenants.urls")),
    path("", include("billing.urls")),
    path("", include("allocation.urls")),
]

handler400 = "portal.web.errors.bad_request"
handler403 = "portal.web.errors.denied"
handler404 = "portal.web.errors.not_found"
handler500 = "portal.web.errors.broken"
