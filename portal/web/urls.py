"""Addresses of sign-in, start, account, second factor and mailed links."""

from django.urls import path

from portal.web.account import account
from portal.web.mail_links import invitation_link, password_forgotten, password_link
from portal.web.second_factor import second_factor, second_factor_setup
from portal.web.sign_in import sign_in, sign_out, start

urlpatterns = [
    path("", start, name="start"),
    path("sign-in", sign_in, name="sign-in"),
    path("account", account, name="account"),
    path("second-factor", second_factor, name="second-factor"),
    path("second-factor/setup", second_factor_setup, name="second-factor-setup"),
    path("password", password_forgotten, name="password-forgotten"),
    path("password/<str:secret>", password_link, name="password-link"),
    path("invitation/<str:secret>", invitation_link, name="invitation-link"),
    path("sign-out", sign_out, name="sign-out"),
]
