"""Addresses of sign-in, start and account."""

from django.urls import path

from portal.web.account import account
from portal.web.sign_in import sign_in, sign_out, start

urlpatterns = [
    path("", start, name="start"),
    path("sign-in", sign_in, name="sign-in"),
    path("account", account, name="account"),
    path("sign-out", sign_out, name="sign-out"),
]
