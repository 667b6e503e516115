"""Pages that show rows and carry out commands, each declared once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import SHOWN_ON_PAGE, form_act_read, id_read
from tenants.web.frame import tenant_page
from tenants.web.step_up import DANGEROUS
from tenants.web.terms_form import Choices, TermsForm

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Act:
    """A command of a page, as the value of `act` in its form.

    `done` is the sentence of success; `{row}` is what the command returned. It takes `terms`, with
    what a form offers for a field by `choices`, or the row whose id the form has as `key`.
    `is_dangerous`: it needs a fresh second factor. `is_shown_once`: the page has what it returned as
    `made`, once, in place of a redirect.
    """

    name: str
    command: Command
    done: str
    key: str = ""
    terms: type[Any] | None = None
    choices: Mapping[str, Callable[[Actor], Choices]] = field(default_factory=dict)
    is_dangerous: bool = False
    is_shown_once: bool = False

    def form(self, actor: Actor, sent: Mapping[str, Any] | None = None) -> TermsForm:
        """Returns the form of the terms, as sent or empty."""
        if self.terms is None:
            raise TypeError(f"{self.name} takes no terms.")
        return TermsForm(self.terms, {name: of(actor) for name, of in self.choices.items()}, sent)

    def run(self, request: HttpRequest, actor: Actor, form: TermsForm | None) -> Any:  # noqa: ANN401 (a row)
        """Carries out the command; returns None if the form is invalid. Raises Refused."""
        sent: dict[str, Any] = {}
        if form is not None:
            if not form.is_valid():
                return None
            sent["terms"] = form.terms()
        elif self.key:
            sent[f"{self.key}_id"] = id_read(request.POST, self.key, self.key.replace("_", "-"))
        row = self.command(actor=actor, now=timezone.now(), **sent)
        messages.success(request, self.done.format(row=row))
        return row


def form_page(
    at: str,
    name: str,
    template: str,
    shown: Callable[[Actor, Any], dict[str, Any]],
    *acts: Act,
) -> URLPattern:
    """Returns the route of a page below `/t/<tenant>/`. `shown(actor, now)` is its context, next to
    `refusal` and in `forms` the inputs, by their names, of each command by its name.

    A command that succeeds leads back to the page. A refusal of input is shown at its field, or
    above the rows; missing rights and missing rows have a page of their own.
    """
    by_name = {act.name: act for act in acts}
    DANGEROUS.update((name, act.name) for act in acts if act.is_dangerous)

    @require_http_methods(["GET", "HEAD", "POST"])
    @tenant_page
    def page(request: HttpRequest, actor: Actor) -> HttpResponse:
        now = timezone.now()
        forms = {act.name: act.form(actor) for act in acts if act.terms is not None}
        refusal, made = None, None
        if request.method == "POST":
            act = by_name[form_act_read(request, by_name)]
            if act.terms is not None:
                forms[act.name] = act.form(actor, request.POST)
            try:
                made = act.run(request, actor, forms.get(act.name))
                if made is not None and not act.is_shown_once:
                    return redirect(name, tenant=actor.tenant_slug)
            except Refused as found:
                if found.kind not in SHOWN_ON_PAGE:
                    raise
                refusal = found
        context = shown(actor, now) | {
            "now": now,
            "refusal": refusal,
            "made": made,
            "forms": {each: form.inputs(refusal) for each, form in forms.items()},
        }
        is_refused = request.method == "POST" and made is None
        return render(request, template, context, status=422 if is_refused else 200)

    return path(f"t/<slug:tenant>/{at}", page, name=name)
