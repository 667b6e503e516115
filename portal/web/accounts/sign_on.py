"""Single sign-on: find the provider of an organisation, go there, and come back.

The operators' process serves these pages; a web process has no right to providers and secrets.
"""

from http import HTTPStatus
from typing import cast
from urllib.parse import quote

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import rotate_token
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from portal.integrations.openid.fetch import ProviderFault
from portal.integrations.openid.id_token import Expected, id_token_read, with_userinfo
from portal.integrations.openid.provider import (
    authorization_url,
    code_exchange,
    userinfo_read,
)
from portal.web.accounts.sign_in import own_path
from portal.words import refusal_text
from tenants.access import client_address
from tenants.models import SignOnAttempt, SignOnProvider, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.rules.webhooks import target_read
from tenants.services.sign_in.rate_limits import call_limit_check
from tenants.services.sign_on.attempts import attempt_start, attempt_take
from tenants.services.sign_on.people import (
    Claims,
    SignedOn,
    session_bind,
    sign_on_connect,
    sign_on_person,
)
from tenants.services.sign_on.providers import endpoints_of, provider_on
from tenants.web.sessions import SessionStore, credential_of

LONGEST_NEXT = 500
LONGEST_ORGANISATION = 80
LONGEST_ANSWER = 4_000


@never_cache
@require_safe
def sign_on(request: HttpRequest) -> HttpResponse:
    """Finds the provider of an organisation by its short name, and links to it."""
    require_operators_process()
    after = _after(request)
    wanted = request.GET.get("organisation", "").strip().lower()[:LONGEST_ORGANISATION]
    provider = None
    if wanted:
        with operator_tx():
            provider = provider_on(wanted)
    context = {
        "wanted": wanted,
        "next": after,
        "provider": provider,
        "host": target_read(endpoints_of(provider).authorization).host if provider else "",
        "is_unknown": bool(wanted) and provider is None,
    }
    return render(request, "portal/sign_on.html", context)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_on_start(request: HttpRequest, slug: str) -> HttpResponse:
    """Sends the browser to the organisation's provider; POST connects the person's account."""
    require_operators_process()
    try:
        call_limit_check("sign_on", client_address(request.META), timezone.now())
        user_id = _connecting(request) if request.method == "POST" else None
        if not request.session.exists(request.session.session_key or ""):
            # Also for the key of a session that has ended, which no attempt may be bound to.
            request.session.create()
        with operator_tx():
            provider = _provider(slug)
            url = _way_to(request, provider, user_id)
    except Refused as refusal:
        return _refused(request, refusal, slug)
    if user_id is None:
        return redirect(url)
    # Browsers refuse to follow a form to another site, so the person follows a link.
    context = {"provider": provider, "url": url, "host": target_read(url).host}
    return render(request, "portal/sign_on_connect.html", context)


@never_cache
@require_safe
def sign_on_callback(request: HttpRequest, slug: str) -> HttpResponse:
    """Takes the provider's answer, checks its ID token and signs the person in."""
    require_operators_process()
    try:
        call_limit_check("sign_on", client_address(request.META), timezone.now())
        with operator_tx():
            provider = _provider(slug)
            attempt = _attempt(request, provider)
        claims = _claims(request, provider, attempt)
        with operator_tx():
            done = _person(request, provider, attempt, claims)
            if done.user is not None:
                return _signed_in(request, provider, attempt, done.user, done.note)
        # Roles that ended stay ended, so this is no exception that undoes the transaction.
        return _refused(request, cast(Refused, done.refusal), slug)
    except ProviderFault as fault:
        return _refused(request, Refused("provider_fault", str(fault)), slug)
    except Refused as refusal:
        return _refused(request, refusal, slug)


def _after(request: HttpRequest) -> str:
    after = own_path(request.GET.get("next", "/"))
    return after if len(after) <= LONGEST_NEXT else "/"


def _callback_url(slug: str) -> str:
    # One address per tenant, so that the answer of one provider never counts as another's.
    return f"{settings.PUBLIC_URL}/sso/{slug}/callback"


def _provider(slug: str) -> SignOnProvider:
    found = provider_on(slug)
    if found is None:
        raise Refused("no_provider", refusal_text("no_provider", slug=slug), "missing")
    return found


def _way_to(request: HttpRequest, provider: SignOnProvider, user_id: int | None) -> str:
    """Returns the provider's address for a new attempt."""
    started = attempt_start(
        provider,
        session=credential_of(request),
        after="/account" if user_id else _after(request),
        now=timezone.now(),
        user_id=user_id,
    )
    return authorization_url(provider, started.attempt, started.state, _callback_url(provider.tenant.slug))


def _connecting(request: HttpRequest) -> int:
    """Returns the signed-in person. Raises Refused `sign_in_first`."""
    user = request.user
    if not isinstance(user, User):
        raise Refused("sign_in_first", refusal_text("sign_in_first"))
    return user.pk


def _attempt(request: HttpRequest, provider: SignOnProvider) -> SignOnAttempt:
    found = attempt_take(
        state=request.GET.get("state", "")[:LONGEST_ANSWER],
        session=credential_of(request),
        tenant_id=provider.tenant_id,
        now=timezone.now(),
    )
    if found is None:
        raise Refused(
            "no_attempt",
            refusal_text("no_attempt"),
        )
    return found


def _claims(request: HttpRequest, provider: SignOnProvider, attempt: SignOnAttempt) -> Claims:
    """Returns the checked claims of the answer. Raises ProviderFault or Refused."""
    error = request.GET.get("error", "")
    if error:
        shown = f" ({error[:60]})" if error.isascii() and error.isprintable() else ""
        raise ProviderFault(refusal_text("provider_answer", tenant=provider.tenant.name, shown=shown))
    issuer = request.GET.get("iss")
    if issuer != provider.issuer and (issuer or endpoints_of(provider).has_issuer_in_answer):
        raise ProviderFault(refusal_text("provider_issuer"))
    code = request.GET.get("code", "")
    if not code or len(code) > LONGEST_ANSWER:
        raise ProviderFault(refusal_text("provider_code"))
    given = code_exchange(provider, attempt, code, _callback_url(provider.tenant.slug))
    expected = Expected(provider.issuer, provider.client_id, attempt.nonce)
    groups, now = provider.groups_claim, timezone.now()
    claims = id_token_read(given.id_token, given.keys, expected, groups, now)
    return with_userinfo(claims, userinfo_read(provider, given.access_token), groups)


def _person(
    request: HttpRequest, provider: SignOnProvider, attempt: SignOnAttempt, claims: Claims
) -> SignedOn:
    now = timezone.now()
    if attempt.user_id is None:
        return sign_on_person(provider, claims, now)
    user = request.user
    if not isinstance(user, User) or user.pk != attempt.user_id:
        raise Refused("no_attempt", refusal_text("other_person"))
    return sign_on_connect(provider, user, claims, now)


def _signed_in(
    request: HttpRequest,
    provider: SignOnProvider,
    attempt: SignOnAttempt,
    user: User,
    note: str,
) -> HttpResponse:
    """Replaces the browser's session by one of the person; in `operator_tx`."""
    now = timezone.now()
    if attempt.user_id is not None:
        # The person keeps the session that they signed in with, which may open other tenants.
        messages.success(request, f"Connected with the provider of {provider.tenant.name}.")
        return redirect(attempt.after)
    store = cast(SessionStore, request.session)
    # A new key, so that one that was known before the sign-in is worth nothing.
    store.flush()
    store.create()
    if not session_bind(credential_of(request), user, provider.tenant_id, now):
        return redirect(f"/second-factor?next={quote(attempt.after)}")
    store.person = user.pk
    store[SESSION_KEY] = str(user.pk)
    rotate_token(request)
    if note:
        messages.warning(request, note)
    return redirect(attempt.after)


def _refused(request: HttpRequest, refusal: Refused, slug: str) -> HttpResponse:
    status = {
        "missing": HTTPStatus.NOT_FOUND,
        "denied": HTTPStatus.FORBIDDEN,
    }.get(refusal.kind, HTTPStatus.UNPROCESSABLE_ENTITY)
    if refusal.code == "too_many_requests":
        status = HTTPStatus.TOO_MANY_REQUESTS
    context = {"refusal": refusal, "slug": slug}
    return render(request, "portal/sign_on_refused.html", context, status=status)
