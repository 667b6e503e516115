"""The question before something that nobody can undo: a page of its own, or a dialog's part."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, what will be lost, and the button whose POST to this address does it."""

    title: str
    lost: tuple[str, ...]
    button: str
    back: str
    keep: str = "Keep it"


def confirm_page(request: HttpRequest, question: Question) -> HttpResponse:
    """The question as a page; with `part=1` without its frame, for a dialog over the page."""
    name = "confirm" if request.GET.get("part") else "confirm_page"
    context = {"question": question, "action": request.path}
    return render(request, f"parts/{name}.html", context)
