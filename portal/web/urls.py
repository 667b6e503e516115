"""Addresses of sign-in, start, account, second factor and mailed links."""

from django.urls import path

from portal.web.accounts.account import account
from portal.web.accounts.device_sign_in import device_sign_in
from portal.web.accounts.directory import directory_settings
from portal.web.accounts.mail_links import invitation_link, password_forgotten, password_link
from portal.web.accounts.passkeys import passkey_sign_in
from portal.web.accounts.personal_data import personal_data
from portal.web.accounts.second_factor import second_factor, second_factor_setup
from portal.web.accounts.sign_in import sign_in, sign_out, start
from portal.web.accounts.sign_on import sign_on, sign_on_callback, sign_on_start
from portal.web.accounts.sign_on_settings import sign_on_settings
from portal.web.keys import urlpatterns as key_urls

urlpatterns = [
    path("", start, name="start"),
    path("sign-in", sign_in, name="sign-in"),
    path("account", account, name="account"),
    path("account/data", personal_data, name="personal-data"),
    path("device", device_sign_in, name="device-sign-in"),
    path("second-factor", second_factor, name="second-factor"),
    path("second-factor/passkey", passkey_sign_in, name="passkey-sign-in"),
    path("second-factor/setup", second_factor_setup, name="second-factor-setup"),
    path("password", password_forgotten, name="password-forgotten"),
    path("password/<str:secret>", password_link, name="password-link"),
    path("invitation/<str:secret>", invitation_link, name="invitation-link"),
    path("sso", sign_on, name="sign-on"),
    path("sso/<slug:slug>", sign_on_start, name="sign-on-start"),
    path("sso/<slug:slug>/callback", sign_on_callback, name="sign-on-callback"),
    path("t/<slug:tenant>/settings/sign-on", sign_on_settings, name="sign-on-settings"),
    path("t/<slug:tenant>/settings/directory", directory_settings, name="directory"),
    path("sign-out", sign_out, name="sign-out"),
    *key_urls,
]
