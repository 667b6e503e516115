"""The sentences of refusals of sign-in, of SCIM and of all REST routes, by code."""

from typing import Any

from tenants.platform.nouns import Plural, Sentence


def refusal_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of a refusal. KeyError: no such sentence, or a fact is missing."""
    return str(_SENTENCES[code] % facts)


_SENTENCES: dict[str, Sentence] = {
    "bad_token": "Send a valid token in the Authorization header.",
    "unauthenticated": "Send a token, as in `Authorization: Bearer gpup_pat_…`.",
    "method_not_allowed": "This address does not support this method.",
    "not_acceptable": "The API answers in application/json only.",
    "malformed_json": "This address does not support the content type of the request.",
    "conflict": "Somebody else changed this at the same time. Reload, then retry.",
    "bad_value": "A value is outside the range that can be stored.",
    "busy": "The portal is busy. Ask again in a moment.",
    "scim_filter": 'Filter by one of %(names)s, as in `name eq "…"`.',
    "scim_operations": "`Operations` must be a list with an operation.",
    "scim_operations_many": "Send at most %(most)s operations at once.",
    "scim_operation": "An operation must be an object.",
    "scim_no_target": "Nothing in the resource is what `%(path)s` selects.",
    "scim_active": "`active` must be true or false; it can't be removed.",
    "scim_kept": "`%(name)s` can't be changed to this here; nothing was changed.",
    "scim_empty": "`value` is an object without attributes: nothing would change.",
    "scim_member_type": "Members are people: `type` must be User.",
    "scim_parameter": "There is no parameter `%(name)s` here.",
    "scim_parameter_twice": "The parameter `%(name)s` is stated twice.",
    "scim_unknown": "SCIM has no attribute `%(name)s` here.",
    "scim_patch_only": "A PATCH has `Operations` and `schemas`, not `%(name)s`.",
    "scim_twice": "`%(name)s` is stated twice.",
    "scim_missing": "`%(name)s` is missing.",
    "scim_text": "`%(name)s` must be text.",
    "scim_true": "`%(name)s` must be true or false.",
    "scim_list": "`%(name)s` must be a list.",
    "scim_object": "`%(name)s` must be an object.",
    "scim_op": "`op` must be add, remove or replace.",
    "scim_syntax": "`%(name)s` is not formed as SCIM defines it.",
    "scim_value": "`%(name)s` has a value that it can't have.",
    "scim_path": "No attribute here has the path `%(name)s`.",
    "scim_fixed": "`%(name)s` can't be changed.",
    "scim_character": "The body has text with a character that can't be stored.",
    "scim_body_long": "The body is too long.",
    "scim_body_json": "The body is not valid JSON.",
    "scim_body_object": "The body must be a JSON object.",
    "scim_number": "`%(name)s` must be a number.",
    "too_many_tries": Plural(
        "Too many attempts. Try again in %(wait)s second.",
        "Too many attempts. Try again in %(wait)s seconds.",
        "wait",
    ),
    "wrong_password": "The current password is wrong.",
    "password_long": "A password has at most %(longest_password)s characters.",
    "not_the_same": "The passwords don't match.",
    "sign_in_failed": "Your account is ready. Sign in to accept.",
    "username_missing": "Enter your sign-in name or e-mail address.",
    "too_many_mails": Plural(
        "Too many requests. Try again in %(wait)s second.",
        "Too many requests. Try again in %(wait)s seconds.",
        "wait",
    ),
    "not_fresh_remove": "Confirm your second factor first, then remove the passkey.",
    "not_fresh_add": "Confirm your second factor first, then add a passkey.",
    "no_provider": "The organisation %(slug)s has no single sign-on.",
    "sign_in_first": "Sign in with your password, then connect your account.",
    "no_attempt": "This sign-in was already used, is older than ten minutes, or began in another browser.",
    "other_person": "Another person has signed in since. Start again.",
    "provider_unsaved": "Save the provider first.",
    "busy_with_yours": (
        "%(most)s of your requests for quotes, previews or long pages are still being answered."
        " Nothing was changed. Try again in %(wait)s s."
    ),
    "busy_with_all": (
        "Many people ask for quotes, previews or long pages now. Nothing was changed. Try again in"
        " %(wait)s s."
    ),
    "busy_page": "The portal is busy. Try again in a moment.",
    "portal_upgrading": (
        "The portal is being upgraded until %(until)s UTC at the latest. Nothing was "
        "changed; try again then. Running bookings continue."
    ),
    "clock_in_doubt": (
        "The portal's clock has jumped, so changes wait until an operator has checked it. Nothing"
        " was changed. Running bookings continue."
    ),
    "malformed_request": "The request is malformed.",
    "not_allowed": "You are not allowed to do this.",
    "address_not_found": "There is no such address, or you have no access to it.",
    "too_slow": "The request did not arrive in time.",
    "body_too_large": "A request body may have at most 1 MiB.",
    "too_many_requests": "Too many requests. Wait, then ask again.",
    "broken": "An internal error occurred and was logged. Please tell an operator.",
    "wrong_code": "The code is wrong or was already used.",
    "wrong_sign_in": "The sign-in name or the password is wrong.",
    "provider_answer": "The provider of %(tenant)s did not sign you in%(shown)s.",
    "provider_issuer": "The answer is from another provider (`iss` differs).",
    "provider_code": "The provider's answer has no code.",
    "provider_address": "Enter the address of the issuer, such as https://login.example.org/realms/lab.",
    "provider_name": "The provider at this address has the issuer %(issuer)s. Enter exactly this issuer.",
    "provider_flow": "The provider does not support the authorization code flow.",
    "provider_pkce": "The provider does not support PKCE with S256.",
    "provider_keys": "The provider's key set has no keys.",
    "provider_no_token": "The provider sent no ID token.",
    "provider_discovery": "The discovery document has no usable %(name)s.",
    "provider_busy": "Too many people are signing in at this moment. Try again.",
    "provider_long": "The provider's answer is too long.",
    "provider_slow": "%(host)s did not answer within %(seconds)s s.",
    "provider_status": "%(host)s answered with status %(status)s%(why)s.",
    "provider_json": "%(host)s did not answer with a JSON object.",
    "provider_certificate": "The certificate of %(host)s was not accepted.",
    "provider_connection": "The connection to %(host)s failed.",
    "provider_http": "The answer of %(host)s is not HTTP.",
    "provider_userinfo": "UserInfo is about another person than the ID token.",
    "id_token": "The provider's ID token was refused. %(why)s",
    "id_token_lacks": "It lacks %(claim)s.",
    "id_token_claim": "Its %(claim)s is not valid.",
    "id_token_unsigned": "It is not signed by a key of the provider.",
    "id_token_subject": "Its subject is empty or too long.",
    "id_token_groups": "It has more than %(max_groups)s groups. Let the provider send fewer.",
    "id_token_iss": "It was issued by another issuer.",
    "id_token_aud": "It was issued for another application. Compare the client ID with the provider's.",
    "id_token_azp": "It was issued to another application. Compare the client ID with the provider's.",
    "id_token_nonce": "It answers another sign-in (nonce). Start again.",
    "id_token_exp": "It has expired. Compare the clocks of the provider and the portal.",
    "id_token_iat": "It was issued in the future. Compare the clocks of the provider and the portal.",
    "id_token_nbf": "It is not valid yet. Compare the clocks of the provider and the portal.",
    "restarting": "The portal is being restarted. Nothing was written; send the request again.",
    "too_many_waiting": "%(most)s requests of your organisation wait to be written. Retry in 1 s.",
}
