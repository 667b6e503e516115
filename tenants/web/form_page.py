"""Pages that show rows and carry out commands, each declared once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor, PlatformActor
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import SHOWN_ON_PAGE, form_act_read, id_read, number_id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.forms.text import form_text_error
from tenants.platform.words import NOUNS
from tenants.rules.operator_roles import Area
from tenants.services.limit_changes import Cut, answer_of
from tenants.web.frame import operator_page, tenant_page
from tenants.web.step_up import DANGEROUS
from tenants.web.terms_form import Choices, TermsForm, paragraphs_of

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Act:
    """A command of a page, as the value of `act` in its form.

    `done` is the sentence of success; `{row}` is what the command returned. It takes the actor, the
    instant, what stands in the path of the page, and `terms`, with what a form offers for a field by
    `choices`, or by `path_choices` that also get what stands in the path, and shows first by `initial`,
    and the row whose id, a `key_type`, the form has as `key`; `noun` says in a refusal what the row is,
    where that is not the name of the key.
    `asks` returns the question that a person must confirm first, and `cuts` that of a command which may
    lower a limit: it gets what carries out the command with a `Cut`, and the address of the page.
    `is_dangerous`: it needs a fresh second factor. `is_shown_once`: the page has what it returned as
    `made`, once, in place of a redirect; else it leads to the page `to`, to the address that `leads`
    returns for the row and the tenant's slug, or back to its own.
    """

    name: str
    command: Command
    done: str | Callable[[Any], str]
    key: str = ""
    key_type: type[UUID] | type[int] = UUID
    noun: str = ""
    terms: type[Any] | None = None
    choices: Mapping[str, Callable[[Any], Choices]] = field(default_factory=dict)
    path_choices: Mapping[str, Callable[..., Choices]] = field(default_factory=dict)
    initial: Callable[..., Mapping[str, Any]] | None = None
    asks: Callable[..., Confirmation | None] | None = None
    cuts: Callable[[Callable[[Cut], object], str], Confirmation | None] | None = None
    is_dangerous: bool = False
    is_shown_once: bool | Callable[[Any], bool] = False
    to: str = ""
    leads: Callable[[Any, str], str] | None = None

    def __post_init__(self) -> None:
        if self.key and self.row_noun not in NOUNS:
            raise TypeError(f"Name the noun of {self.key} in {self.name}: tenants.platform.words.NOUNS.")

    @property
    def row_noun(self) -> str:
        """What the row of the key is, in a refusal."""
        return self.noun or self.key.replace("_", "-")

    def form(
        self,
        actor: Any,  # noqa: ANN401 (who the page is for)
        sent: Mapping[str, Any] | None = None,
        keys: Mapping[str, Any] = MappingProxyType({}),
    ) -> TermsForm:
        """Returns the form of the terms, as sent or as it is shown first."""
        if self.terms is None:
            raise TypeError(f"{self.name} takes no terms.")
        initial = self.initial(actor, **keys) if self.initial is not None and sent is None else {}
        choices = {name: of(actor) for name, of in self.choices.items()}
        choices |= {name: of(actor, **keys) for name, of in self.path_choices.items()}
        return TermsForm(self.terms, choices, sent, initial)

    def question(self, request: HttpRequest, actor: Any, keys: Mapping[str, Any]) -> Confirmation | None:  # noqa: ANN401
        """Returns what a person has to confirm, unless they have."""
        if CONFIRMED_FIELD in request.POST:
            return None
        if self.asks is not None:
            return self.asks(actor, **keys)
        form = self.form(actor, request.POST, keys) if self.terms is not None else None
        if self.cuts is None or (form is not None and not form.is_valid()):
            return None
        sent = self._sent(request, keys, form)
        return self.cuts(
            lambda cut: self.command(actor=actor, now=timezone.now(), cut=cut, **sent), request.path
        )

    def _sent(self, request: HttpRequest, keys: Mapping[str, Any], form: TermsForm | None) -> dict[str, Any]:
        """What the command takes from a valid form. Raises Refused."""
        sent: dict[str, Any] = dict(keys)
        if form is not None:
            sent["terms"] = form.terms()
        if self.key:
            read = id_read if self.key_type is UUID else number_id_read
            sent[f"{self.key}_id"] = read(request.POST, self.key, self.row_noun)
        return sent

    def shows(self, row: Any) -> bool:  # noqa: ANN401 (what the command returned)
        """Returns whether the page shows once what was returned."""
        return self.is_shown_once if isinstance(self.is_shown_once, bool) else self.is_shown_once(row)

    def next_address(self, row: Any, own: str, base: dict[str, str], keys: Mapping[str, Any]) -> str:  # noqa: ANN401
        """Returns where a browser goes when the command is done; `own` is the name of its page."""
        if self.leads is not None:
            return self.leads(row, base.get("tenant", ""))
        return reverse(self.to or own, kwargs=base if self.to else {**base, **keys})

    def tried(
        self,
        request: HttpRequest,
        actor: Any,  # noqa: ANN401 (who the page is for)
        keys: Mapping[str, Any],
        form: TermsForm | None,
        fault: Refused | None,
    ) -> tuple[bool, Any, Refused | None]:
        """Carries out the command, unless its text has a `fault`; returns whether it is done, its row, and a
        refusal for the page. Raises Refused that has a page of its own."""
        if fault is not None:
            if form is None or fault.param not in form.fields:
                raise fault
            return False, None, fault
        try:
            return (*self.run(request, actor, keys, form), None)
        except Refused as found:
            if found.kind not in SHOWN_ON_PAGE:
                raise
            return False, None, found

    def run(
        self,
        request: HttpRequest,
        actor: Any,  # noqa: ANN401 (who the page is for)
        keys: Mapping[str, Any],
        form: TermsForm | None,
    ) -> tuple[bool, Any]:
        """Carries out the command; returns whether the form was valid, and its row. Raises Refused."""
        if form is not None and not form.is_valid():
            return False, None
        sent = self._sent(request, keys, form)
        if self.cuts is not None:
            sent["cut"] = Cut(answer_of(request.POST))
        row = self.command(actor=actor, now=timezone.now(), **sent)
        messages.success(request, self.done.format(row=row) if isinstance(self.done, str) else self.done(row))
        return True, row


def form_page(
    at: str,
    name: str,
    template: str,
    shown: Callable[..., dict[str, Any]],
    *acts: Act,
    queries: tuple[str, ...] = (),
) -> URLPattern:
    """Returns the route of a page below `/t/<tenant>/`. `shown(actor, now)` is its context, next to
    `refusal` and in `forms` the inputs, by their names, of each command by its name; it also gets
    what stands in the path, and the `queries` of the address.

    A command that succeeds leads back to the page. A refusal of input is shown at its field, or
    above the rows; missing rights and missing rows have a page of their own.
    """
    DANGEROUS.update((name, act.name) for act in acts if act.is_dangerous)
    carry = _carried(name, template, shown, acts, queries)

    @require_http_methods(["GET", "HEAD", "POST"])
    @tenant_page
    def page(request: HttpRequest, actor: Actor, **keys: Any) -> HttpResponse:  # noqa: ANN401 (of the path)
        return carry(request, actor, {"tenant": actor.tenant_slug}, keys)

    return path(f"t/<slug:tenant>/{at}", page, name=name)


def operator_form_page(  # noqa: PLR0913 (named parts of one declaration)
    at: str,
    name: str,
    template: str,
    shown: Callable[..., dict[str, Any]],
    *acts: Act,
    area: Area,
    actor_of: Callable[[User], Any] = PlatformActor.of,
    queries: tuple[str, ...] = (),
) -> URLPattern:
    """Returns the route of an operators' page below `/ops/`. Its commands get `actor_of(operator)`.
    `area`: for which operators need a role."""
    carry = _carried(name, template, shown, acts, queries)

    @require_http_methods(["GET", "HEAD", "POST"])
    @operator_page(area)
    def page(request: HttpRequest, operator: User, **keys: Any) -> HttpResponse:  # noqa: ANN401 (of the path)
        return carry(request, actor_of(operator), {}, keys)

    return path(f"ops/{at}", page, name=name)


def _carried(
    name: str,
    template: str,
    shown: Callable[..., dict[str, Any]],
    acts: tuple[Act, ...],
    queries: tuple[str, ...],
) -> Callable[[HttpRequest, Any, dict[str, str], dict[str, Any]], HttpResponse]:
    by_name = {act.name: act for act in acts}
    paragraphs = frozenset().union(*(paragraphs_of(act.terms) for act in acts))

    def carry(
        request: HttpRequest,
        actor: Any,  # noqa: ANN401 (who the page is for)
        base: dict[str, str],
        keys: dict[str, Any],
    ) -> HttpResponse:
        refusal, made, is_done, acted, bound = None, None, False, "", {}
        asked = {each: request.GET.get(each, "") for each in queries}
        if request.method == "POST":
            fault = form_text_error(request, paragraphs)
            act = by_name[acted := form_act_read(request, by_name)]
            if fault is None and (question := act.question(request, actor, keys)) is not None:
                return confirm_page(request, question)
            form = act.form(actor, request.POST, keys) if act.terms is not None else None
            is_done, made, refusal = act.tried(request, actor, keys, form, fault)
            if is_done and not act.shows(made):
                return redirect(act.next_address(made, name, base, keys))
            if form is not None and not is_done:
                bound[act.name] = form
        forms = {
            each.name: bound.get(each.name) or each.form(actor, keys=keys | asked)
            for each in acts
            if each.terms is not None
        }
        now = timezone.now()
        context = {
            "now": now,
            "refusal": refusal,
            "made": made,
            "act": acted if is_done else "",
            "refused": "" if is_done else acted,
            "forms": {each.replace("-", "_"): form.inputs(refusal) for each, form in forms.items()},
        }
        context |= shown(actor, now, **keys, **asked)
        return render(request, template, context, status=422 if context["refused"] else 200)

    return carry
