"""The sentences of refusals of sign-in, of SCIM and of all REST routes, by code."""

from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, ngettext_lazy


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code] % facts)


_SENTENCES: dict[str, Promise] = {
    "bad_token": gettext_lazy("Send a valid token in the Authorization header."),
    "unauthenticated": gettext_lazy("Send a token, as in `Authorization: Bearer gpup_pat_…`."),
    "method_not_allowed": gettext_lazy("This address does not support this method."),
    "not_acceptable": gettext_lazy("The API answers in application/json only."),
    "malformed_json": gettext_lazy("This address does not support the content type of the request."),
    "conflict": gettext_lazy("Somebody else changed this at the same time. Reload, then retry."),
    "bad_value": gettext_lazy("A value is outside the range that can be stored."),
    "busy": gettext_lazy("The portal is busy. Ask again in a moment."),
    "scim_filter": gettext_lazy('Filter by one of %(names)s, as in `name eq "…"`.'),
    "scim_operations": gettext_lazy("`Operations` must be a list with an operation."),
    "scim_operations_many": gettext_lazy("Send at most %(most)s operations at once."),
    "scim_operation": gettext_lazy("An operation must be an object."),
    "scim_no_target": gettext_lazy("Nothing in the resource is what `%(path)s` selects."),
    "scim_active": gettext_lazy("`active` must be true or false; it can't be removed."),
    "scim_kept": gettext_lazy("`%(name)s` can't be changed to this here; nothing was changed."),
    "scim_empty": gettext_lazy("`value` is an object without attributes: nothing would change."),
    "scim_member_type": gettext_lazy("Members are people: `type` must be User."),
    "scim_parameter": gettext_lazy("There is no parameter `%(name)s` here."),
    "scim_parameter_twice": gettext_lazy("The parameter `%(name)s` is stated twice."),
    "scim_unknown": gettext_lazy("SCIM has no attribute `%(name)s` here."),
    "scim_patch_only": gettext_lazy("A PATCH has `Operations` and `schemas`, not `%(name)s`."),
    "scim_twice": gettext_lazy("`%(name)s` is stated twice."),
    "scim_missing": gettext_lazy("`%(name)s` is missing."),
    "scim_text": gettext_lazy("`%(name)s` must be text."),
    "scim_true": gettext_lazy("`%(name)s` must be true or false."),
    "scim_list": gettext_lazy("`%(name)s` must be a list."),
    "scim_object": gettext_lazy("`%(name)s` must be an object."),
    "scim_op": gettext_lazy("`op` must be add, remove or replace."),
    "scim_syntax": gettext_lazy("`%(name)s` is not formed as SCIM defines it."),
    "scim_value": gettext_lazy("`%(name)s` has a value that it can't have."),
    "scim_path": gettext_lazy("No attribute here has the path `%(name)s`."),
    "scim_fixed": gettext_lazy("`%(name)s` can't be changed."),
    "scim_character": gettext_lazy("The body has text with a character that can't be stored."),
    "scim_body_long": gettext_lazy("The body is too long."),
    "scim_body_json": gettext_lazy("The body is not valid JSON."),
    "scim_body_object": gettext_lazy("The body must be a JSON object."),
    "scim_number": gettext_lazy("`%(name)s` must be a number."),
    "too_many_tries": ngettext_lazy(
        "Too many attempts. Try again in %(wait)s second.",
        "Too many attempts. Try again in %(wait)s seconds.",
        "wait",
    ),
    "wrong_password": gettext_lazy("The current password is wrong."),
    "password_long": gettext_lazy("A password has at most %(longest_password)s characters."),
    "not_the_same": gettext_lazy("The passwords don't match."),
    "sign_in_failed": gettext_lazy("Your account is ready. Sign in to accept."),
    "username_missing": gettext_lazy("Enter your sign-in name or e-mail address."),
    "too_many_mails": ngettext_lazy(
        "Too many requests. Try again in %(wait)s second.",
        "Too many requests. Try again in %(wait)s seconds.",
        "wait",
    ),
    "not_fresh_remove": gettext_lazy("Confirm your second factor first, then remove the passkey."),
    "not_fresh_add": gettext_lazy("Confirm your second factor first, then add a passkey."),
    "no_provider": gettext_lazy("The organisation %(slug)s has no single sign-on."),
    "sign_in_first": gettext_lazy("Sign in with your password, then connect your account."),
    "no_attempt": gettext_lazy(
        "This sign-in was already used, is older than ten minutes, or began in another browser."
    ),
    "other_person": gettext_lazy("Another person has signed in since. Start again."),
    "provider_unsaved": gettext_lazy("Save the provider first."),
    "busy_with_yours": gettext_lazy(
        "%(most)s of your requests for quotes, previews or long pages are still being answered."
        " Nothing was changed. Try again in %(wait)s s."
    ),
    "busy_with_all": gettext_lazy(
        "Many people ask for quotes, previews or long pages now. Nothing was changed. Try again in"
        " %(wait)s s."
    ),
    "busy_page": gettext_lazy("The portal is busy. Try again in a moment."),
    "portal_upgrading": gettext_lazy(
        "The portal is being upgraded until %(until)s UTC at the latest. Nothing was "
        "changed; try again then. Running bookings continue."
    ),
    "clock_in_doubt": gettext_lazy(
        "The portal's clock has jumped, so changes wait until an operator has checked it. Nothing"
        " was changed. Running bookings continue."
    ),
    "malformed_request": gettext_lazy("The request is malformed."),
    "not_allowed": gettext_lazy("You are not allowed to do this."),
    "address_not_found": gettext_lazy("There is no such address, or you have no access to it."),
    "too_slow": gettext_lazy("The request did not arrive in time."),
    "body_too_large": gettext_lazy("A request body may have at most 1 MiB."),
    "too_many_requests": gettext_lazy("Too many requests. Wait, then ask again."),
    "broken": gettext_lazy("An internal error occurred and was logged. Please tell an operator."),
    "wrong_code": gettext_lazy("The code is wrong or was already used."),
    "wrong_sign_in": gettext_lazy("The sign-in name or the password is wrong."),
    "provider_answer": gettext_lazy("The provider of %(tenant)s did not sign you in%(shown)s."),
    "provider_issuer": gettext_lazy("The answer is from another provider (`iss` differs)."),
    "provider_code": gettext_lazy("The provider's answer has no code."),
    "provider_address": gettext_lazy(
        "Enter the address of the issuer, such as https://login.example.org/realms/lab."
    ),
    "provider_name": gettext_lazy(
        "The provider at this address has the issuer %(issuer)s. Enter exactly this issuer."
    ),
    "provider_flow": gettext_lazy("The provider does not support the authorization code flow."),
    "provider_pkce": gettext_lazy("The provider does not support PKCE with S256."),
    "provider_keys": gettext_lazy("The provider's key set has no keys."),
    "provider_no_token": gettext_lazy("The provider sent no ID token."),
    "provider_discovery": gettext_lazy("The discovery document has no usable %(name)s."),
    "provider_busy": gettext_lazy("Too many people are signing in at this moment. Try again."),
    "provider_long": gettext_lazy("The provider's answer is too long."),
    "provider_slow": gettext_lazy("%(host)s did not answer within %(seconds)s s."),
    "provider_status": gettext_lazy("%(host)s answered with status %(status)s%(why)s."),
    "provider_json": gettext_lazy("%(host)s did not answer with a JSON object."),
    "provider_certificate": gettext_lazy("The certificate of %(host)s was not accepted."),
    "provider_connection": gettext_lazy("The connection to %(host)s failed."),
    "provider_http": gettext_lazy("The answer of %(host)s is not HTTP."),
    "provider_userinfo": gettext_lazy("UserInfo is about another person than the ID token."),
    "id_token": gettext_lazy("The provider's ID token was refused. %(why)s"),
    "id_token_lacks": gettext_lazy("It lacks %(claim)s."),
    "id_token_claim": gettext_lazy("Its %(claim)s is not valid."),
    "id_token_unsigned": gettext_lazy("It is not signed by a key of the provider."),
    "id_token_subject": gettext_lazy("Its subject is empty or too long."),
    "id_token_groups": gettext_lazy("It has more than %(max_groups)s groups. Let the provider send fewer."),
    "id_token_iss": gettext_lazy("It was issued by another issuer."),
    "id_token_aud": gettext_lazy(
        "It was issued for another application. Compare the client ID with the provider's."
    ),
    "id_token_azp": gettext_lazy(
        "It was issued to another application. Compare the client ID with the provider's."
    ),
    "id_token_nonce": gettext_lazy("It answers another sign-in (nonce). Start again."),
    "id_token_exp": gettext_lazy("It has expired. Compare the clocks of the provider and the portal."),
    "id_token_iat": gettext_lazy(
        "It was issued in the future. Compare the clocks of the provider and the portal."
    ),
    "id_token_nbf": gettext_lazy("It is not valid yet. Compare the clocks of the provider and the portal."),
    "restarting": gettext_lazy("The portal is being restarted. Nothing was written; send the request again."),
    "too_many_waiting": gettext_lazy(
        "%(most)s requests of your organisation wait to be written. Retry in 1 s."
    ),
}
