"""The door and the start."""

from django.urls import path

from portal.web.sign_in import sign_in, sign_out, start

urlpatterns = [
    path("", start, name="start"),
    path("sign-in", sign_in, name="sign-in"),
    path("sign-out", sign_out, name="sign-out"),
]
