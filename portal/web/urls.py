"""Addresses of sign-in, start, account and mailed links."""

from django.urls import path

from portal.web.account import account
from portal.web.mail_links import invitation_link, password_forgotten, password_link
from portal.web.sign_in import sign_in, sign_out, start

urlpatterns = [
    path("", start, name="start"),
    path("sign-in", sign_in, name="sign-in"),
    path("account", account, name="account"),
    path("password", password_forgotten, name="password-forgotten"),
    path("password/<str:secret>", password_link, name="password-link"),
    path("invitation/<str:secret>", invitation_link, name="invitation-link"),
    path("sign-out", sign_out, name="sign-out"),
]
