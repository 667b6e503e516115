"""The texts of a maintenance preview. No database."""

from dataclasses import dataclass

from allocation.services.operate.maintenance import Preview


@dataclass(frozen=True, slots=True)
class PreviewWords:
    """The preview: effects, the confirmation's text and the button's text."""

    tone: str
    summary: str
    agreement: str
    button: str


def preview_words(preview: Preview) -> PreviewWords:
    """Returns the texts of a preview."""
    kept, lost, broken = preview.kept, preview.lost, len(preview.running)
    summary = [f"{_count(kept, 'planned start')} would move."] * bool(kept)
    summary += [f"{_count(lost, 'planned start')} cannot move and would be cancelled."] * bool(lost)
    summary += [f"{_count(broken, 'running booking')} would be interrupted."] * bool(broken)
    agreement = [f"Cancel {_count(lost, 'booking')}"] * bool(lost)
    agreement += [f"interrupt {_count(broken, 'running booking')}"] * bool(broken)
    button = ["Plan maintenance"]
    button += [f"move {_count(kept, 'start')}"] * bool(kept)
    button += [f"cancel {lost}"] * bool(lost)
    button += [f"interrupt {broken}"] * bool(broken)
    return PreviewWords(
        tone="risk" if preview.hurt else "wait" if preview.moved else "ok",
        summary=" ".join(summary) or "No planned start would move.",
        agreement=", ".join(agreement),
        button=", ".join(button),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
