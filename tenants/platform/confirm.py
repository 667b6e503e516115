"""The question before something that nobody can undo: a page of its own, or a dialog's part."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

CSRF_FIELD = "csrfmiddlewaretoken"
CONFIRMED_FIELD = "sure"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What is asked, what will be lost, and the button whose POST to this address does it."""

    title: str
    lost: tuple[str, ...]
    button: str
    back: str
    keep: str = "Keep it"


def confirm_page(request: HttpRequest, question: Confirmation) -> HttpResponse:
    """The question as a page; with `part=1` without its frame, for a dialog over the page.

    Asked in answer to a POST, its button sends the same fields again, with `sure`.
    """
    name = "confirm" if request.GET.get("part") else "confirm_page"
    fields = [(each, value) for each, value in request.POST.items() if each != CSRF_FIELD]
    if request.method == "POST":
        fields.append((CONFIRMED_FIELD, "1"))
    context = {"question": question, "action": request.path, "fields": fields}
    return render(request, f"parts/{name}.html", context)
