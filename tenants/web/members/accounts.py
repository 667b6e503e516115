"""The operators' page of all accounts: search, close, reopen, erase."""

from dataclasses import dataclass

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.models import Membership, Passkey, SecondFactor, User
from tenants.platform.errors import missing
from tenants.platform.forms.actions import form_action_run
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.rules.operator_roles import Area
from tenants.services import whole_read
from tenants.services.members.people import account_erase, account_open_set
from tenants.services.sign_in.second_factor import factor_remove
from tenants.web.frame import operator_page

MAX_SHOWN = 50
MAX_WANTED = 80


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account with the names of the organisations in which it has a role."""

    user: User
    tenants: tuple[str, ...]
    is_erased: bool
    has_factor: bool


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.PEOPLE)
def ops_accounts(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows accounts by name; at most 50."""
    refusal = None
    if request.method == "POST":
        if (question := _question(request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(
            request,
            {
                "close": lambda form: _open(operator, form, is_open=False),
                "open": lambda form: _open(operator, form, is_open=True),
                "factor": lambda form: _factor(operator, form),
                "erase": lambda form: _erase(operator, form),
            },
        )
        if refusal is None:
            return redirect("ops-accounts")
    wanted = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_WANTED]
    rows = _rows(wanted)
    context = {
        "rows": rows[:MAX_SHOWN],
        "has_more": len(rows) > MAX_SHOWN,
        "wanted": wanted,
        "refusal": refusal,
    }
    return render(request, "tenants/ops_accounts.html", context, status=422 if refusal else 200)


def _rows(wanted: str) -> list[AccountRow]:
    users = User.objects.all()
    for word in wanted.split():
        users = users.filter(
            Q(username__icontains=word)
            | Q(first_name__icontains=word)
            | Q(last_name__icontains=word)
            | Q(email__icontains=word)
        )
    shown = list(users.order_by("username")[: MAX_SHOWN + 1])
    confirmed = SecondFactor.objects.filter(user__in=shown).exclude(confirmed=None)
    factors = set(confirmed.values_list("user_id", flat=True))
    factors.update(Passkey.objects.filter(user__in=shown).values_list("user_id", flat=True))
    tenants: dict[int, list[str]] = {}
    roles = Membership.objects.filter(user__in=shown).order_by("tenant__name")
    for user_id, name in roles.values_list("user_id", "tenant__name").distinct():
        tenants.setdefault(user_id, []).append(name)
    return [
        AccountRow(user, tuple(tenants.get(user.pk, ())), _is_erased(user), user.pk in factors)
        for user in shown
    ]


def _is_erased(user: User) -> bool:
    return not user.is_active and user.username == f"erased-{user.pk}"


def _user(form: QueryDict) -> User:
    user = User.objects.filter(id=whole_read(form.get("user", ""), param="user")).first()
    if user is None:
        raise missing("account", "user")
    return user


def _open(operator: User, form: QueryDict, *, is_open: bool) -> str:
    user = account_open_set(operator=operator, user_id=_user(form).pk, is_open=is_open, now=timezone.now())
    return f"Account {user.username} is {'open again' if is_open else 'closed'}."


def _factor(operator: User, form: QueryDict) -> str:
    user = _user(form)
    factor_remove(user=user, by=operator, now=timezone.now())
    return f"Second factor of {user.username} removed. Their password is enough again."


def _erase(operator: User, form: QueryDict) -> str:
    user = account_erase(operator=operator, user_id=_user(form).pk, now=timezone.now())
    return f"Personal data erased. Bookings and charges keep the name {user.username}."


def _question(form: QueryDict) -> Confirmation | None:
    """Before an account is closed or erased."""
    if form.get("act") not in ("close", "erase", "factor") or CONFIRMED_FIELD in form:
        return None
    user = _user(form)
    if form.get("act") == "erase":
        return Confirmation(
            title=f"Erase the personal data of {user.username}?",
            lost=(
                "Name, sign-in name, address, password, roles, and invitations and mails to them.",
                "Bookings, charges and the log keep a number without a name.",
                "This can't be undone.",
            ),
            button=f"Erase {user.username}",
            back="/ops/accounts",
        )
    if form.get("act") == "factor":
        return Confirmation(
            title=f"Remove the second factor of {user.username}?",
            lost=(
                "Authenticator app, recovery codes and passkeys. The password alone then signs in.",
                "Make sure that the person asks, and not somebody who has their password.",
            ),
            button=f"Remove it from {user.username}",
            back="/ops/accounts",
        )
    return Confirmation(
        title=f"Close the account {user.username}?",
        lost=(
            "All its browsers are signed out, and its API tokens stop working.",
            "Its roles stay. What is planned for it is cancelled within a minute; what runs ends at"
            " its time and is charged. You can reopen the account.",
        ),
        button=f"Close {user.username}",
        back="/ops/accounts",
    )
