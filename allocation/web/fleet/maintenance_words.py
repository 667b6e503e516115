"""What planned maintenance would do, in words. No database."""

from dataclasses import dataclass

from allocation.services.operate.maintenance import Preview


@dataclass(frozen=True, slots=True)
class PreviewWords:
    """The look ahead: what would happen, what has to be agreed to, and the button's words."""

    tone: str
    summary: str
    agreement: str
    button: str


def preview_words(preview: Preview) -> PreviewWords:
    """Returns the words of a look ahead."""
    kept, lost, broken = preview.kept, preview.lost, len(preview.running)
    summary = [f"{_count(kept, 'planned start')} would move."] * bool(kept)
    summary += [f"{_count(lost, 'planned start')} cannot move and would be cancelled."] * bool(lost)
    summary += [f"{_count(broken, 'running booking')} would be broken off."] * bool(broken)
    agreement = [f"{_count(lost, 'booking')} may be cancelled"] * bool(lost)
    agreement += [f"{broken} may be broken off"] * bool(broken)
    button = ["Plan it"]
    button += [f"move {_count(kept, 'start')}"] * bool(kept)
    button += [f"cancel {lost}"] * bool(lost)
    button += [f"break off {broken}"] * bool(broken)
    return PreviewWords(
        tone="risk" if preview.hurt else "wait" if preview.moved else "ok",
        summary=" ".join(summary) or "Nobody's start would move.",
        agreement=", ".join(agreement),
        button=", ".join(button),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
