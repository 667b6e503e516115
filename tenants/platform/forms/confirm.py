"""Confirmation of an action that cannot be undone, as a page or in a dialog."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

CSRF_FIELD = "csrfmiddlewaretoken"
CONFIRMED_FIELD = "sure"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several ways to carry it out: a value, its name, and what it means."""

    value: str
    label: str
    says: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question, the losses, and the button whose POST to the same address carries it out.

    With `choices` a person takes one of them, the first unless they say another, which is sent as the
    field `chosen`.
    """

    title: str
    lost: tuple[str, ...]
    button: str
    back: str
    keep: str = "Keep it"
    chosen: str = ""
    choices: tuple[Choice, ...] = ()


def confirm_page(request: HttpRequest, question: Confirmation) -> HttpResponse:
    """Renders the confirmation as a page, or with `part=1` as the content of a dialog.

    In answer to a POST, its button sends the same fields again, with `sure`.
    """
    name = "confirm" if request.GET.get("part") else "confirm_page"
    lists = request.POST.lists()
    fields = [(each, value) for each, values in lists for value in values if each != CSRF_FIELD]
    if request.method == "POST":
        fields.append((CONFIRMED_FIELD, "1"))
    context = {"question": question, "action": request.path, "fields": fields}
    return render(request, f"parts/{name}.html", context)
