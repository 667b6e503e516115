"""The rows of the budget tree: one per budget, and one per project without a budget."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from uuid import UUID

from billing.queries import BudgetFigures
from billing.rules import Period, money_text, period_text
from tenants.access import Actor
from tenants.models import Project

WARN_DEFAULT = 80
HUNDRED = Decimal(100)
KINDS = {
    "tenant": "organisation",
    "lab": "lab",
    "project": "",
    "campaign": "campaign",
    "person": "person",
}
DEPTHS = {"tenant": 0, "lab": 1, "project": 1}

BUDGET_KINDS = (("hard", "Refuse bookings (hard)"), ("soft", "Only warn (soft)"))


@dataclass(frozen=True, slots=True)
class RefusedBudget:
    """What a form sent for one row, and what was wrong with it."""

    key: str
    amount: str
    warn_percent: str
    param: str
    sentence: str


@dataclass(frozen=True, slots=True)
class TreeBar:
    """A bar on the tree's one scale: widths in percent of the largest amount."""

    amount: Decimal
    spent: Decimal
    held: Decimal
    warn: Decimal
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """A budget in the tree; `figures` is None for a project without one."""

    key: str
    level: str
    name: str
    period: Period
    project: Project | None
    owner_name: str
    figures: BudgetFigures | None
    bar: TreeBar | None
    may_edit: bool
    note: str
    error: RefusedBudget | None
    has_alert: bool = False
    """Whether it notifies at the share that it shows."""
    is_in_lab: bool = False
    """Whether it is below the budget of a lab."""

    @property
    def depth(self) -> int:
        """The indentation."""
        return DEPTHS.get(self.level, 2) + self.is_in_lab

    @property
    def kind(self) -> str:
        """The level in words; empty for a project."""
        return KINDS[self.level]

    @property
    def tags(self) -> str:
        """The period and what is special about it, as text."""
        found = [period_text(self.period), self.kind]
        if self.project is not None and not self.project.is_open and self.level == "project":
            found.append("closed")
        if self.figures is not None:
            found.append("" if self.figures.is_hard else "soft: it only warns")
            found.append("repeats" if self.figures.is_repeated else "")
            found.append("rolls over" if self.figures.rolls_over else "")
        return " · ".join(each for each in found if each)

    @property
    def amount_text(self) -> str:
        """The value of the amount's field."""
        if self.error is not None:
            return self.error.amount
        return f"{self.figures.amount:.2f}" if self.figures else ""

    @property
    def warn_text(self) -> str:
        """The value of the warning's field."""
        if self.error is not None:
            return self.error.warn_percent
        if self.figures is None:
            return str(WARN_DEFAULT)
        return str(self.figures.warn_percent) if self.has_alert else ""

    @property
    def is_amount_wrong(self) -> bool:
        """Whether its form was refused, for another reason than its warning."""
        return self.error is not None and self.error.param != "warn_percent"

    @property
    def spent(self) -> str:
        """Spent money as text."""
        return self._text("spent")

    @property
    def held(self) -> str:
        """Held money as text."""
        return self._text("held")

    @property
    def left(self) -> str:
        """The rest as text."""
        return self._text("left")

    @property
    def amount(self) -> str:
        """The amount as text."""
        return self._text("amount")

    def _text(self, name: str) -> str:
        if self.figures is None:
            return ""
        return money_text(getattr(self.figures.in_cents, name), self.figures.currency)


@dataclass(frozen=True, slots=True)
class Tree:
    """What the rows are made of."""

    actor: Actor
    month: Period
    projects: Sequence[Project]
    figures: Sequence[BudgetFigures]
    owners: dict[str, str]
    """The slug or sign-in name of campaigns and people, by `owner_key`."""
    typed: RefusedBudget | None
    alerted: Collection[UUID] = ()
    """The budgets that notify at the share that they show."""

    def rows(self) -> list[Row]:
        """The organisation, then each lab with its projects, then the other projects; each project
        with its campaigns and people."""
        found = [self._row(None, each) for each in self._of("tenant")]
        with_budget: set[UUID | None] = {each.lab_id for each in self._of("lab")}
        for lab in self._of("lab"):
            found.append(self._row(None, lab))
            later = [each for each in self._of("lab") if each.starts > lab.starts]
            if lab.lab_id not in {each.lab_id for each in later}:
                inside = [each for each in self.projects if each.lab_id == lab.lab_id]
                found += [row for each in inside for row in self._rows_of(each, is_in_lab=True)]
        others = [each for each in self.projects if each.lab_id not in with_budget]
        return found + [row for each in others for row in self._rows_of(each, is_in_lab=False)]

    def _rows_of(self, project: Project, *, is_in_lab: bool) -> list[Row]:
        own = self._of("project", project)
        found: list[BudgetFigures | None] = [*own] if own else [None]
        found += [*self._of("campaign", project), *self._of("person", project)]
        return [replace(self._row(project, each), is_in_lab=is_in_lab) for each in found]

    def _of(self, level: str, project: Project | None = None) -> list[BudgetFigures]:
        key = project.id if project else None
        found = [each for each in self.figures if (each.level, each.project_id) == (level, key)]
        return sorted(found, key=lambda each: (each.name if level == "lab" else "", each.starts))

    def _row(self, project: Project | None, figures: BudgetFigures | None) -> Row:
        level = figures.level if figures else "project"
        period = figures.period if figures else self.month
        owner = self.owners.get(owner_key(figures), "") if figures else ""
        key = row_key(project.slug if project else "", level, owner, period)
        return Row(
            key=key,
            level=level,
            name=figures.name if figures else str(project),
            period=period,
            project=project,
            owner_name=owner,
            figures=figures,
            bar=self._bar(figures) if figures else None,
            may_edit=self.actor.is_tenant_admin
            or (project is not None and level != "project" and self.actor.may_lead(project.id)),
            note=self._sum_note(figures) if figures else "",
            error=self.typed if self.typed and self.typed.key == key else None,
            has_alert=figures is not None and figures.budget_id in self.alerted,
        )

    def _bar(self, figures: BudgetFigures) -> TreeBar:
        top = max((max(each.amount, each.spent + each.held) for each in self.figures), default=0)

        def percent(part: Decimal) -> Decimal:
            return (part * HUNDRED / top).quantize(Decimal("0.01")) if top else Decimal(0)

        shown = figures.in_cents
        spent, held, left, amount = (
            money_text(each, figures.currency) for each in (shown.spent, shown.held, shown.left, shown.amount)
        )
        return TreeBar(
            amount=percent(figures.amount),
            spent=percent(figures.spent),
            held=percent(figures.held),
            warn=percent(figures.amount * figures.warn_percent / 100),
            label=f"{figures.name}: {spent} spent, {held} held, {left} left of {amount}",
        )

    def _sum_note(self, figures: BudgetFigures) -> str:
        """Says when the budgets of a level below add up to more than this one."""
        if figures.level == "tenant":
            parts = [
                ("Labs", self._inside("lab", figures)),
                ("Projects", self._inside("project", figures)),
            ]
        elif figures.level == "lab":
            parts = [("Its projects", self._inside("project", figures))]
        elif figures.level == "project":
            parts = [
                ("Campaigns", self._inside("campaign", figures)),
                ("People", self._inside("person", figures)),
            ]
        else:
            return ""
        return " · ".join(
            f"{word} add up to {money_text(total, figures.currency)},"
            f" {money_text(total - figures.amount, figures.currency)} more than this"
            for word, total in parts
            if total > figures.amount
        )

    def _inside(self, level: str, parent: BudgetFigures) -> Decimal:
        return sum(
            (
                each.amount
                for each in self.figures
                if each.level == level
                and parent.project_id in (None, each.project_id)
                and parent.lab_id in (None, self._lab_of(each))
                and parent.starts <= each.starts
                and each.ends <= parent.ends
            ),
            Decimal(0),
        )

    def _lab_of(self, figures: BudgetFigures) -> UUID | None:
        """The lab of a project's budget."""
        mine = (each.lab_id for each in self.projects if each.id == figures.project_id)
        return next(mine, None)


def owner_key(figures: BudgetFigures) -> str:
    """A key of a budget's campaign, person or lab."""
    return f"{figures.campaign_id or figures.person_id or figures.lab_id or ''}"


def row_key(project: str, level: str, owner: str, period: Period) -> str:
    """The id of a row; the same for the form and its refusal."""
    parts = [level if level in ("tenant", "lab") else "", project, owner, period.starts.isoformat()]
    return "-".join(part for part in parts if part)


def without_budget(rows: Iterable[Row]) -> Iterator[Row]:
    """The open projects that can't book in the month."""
    return (
        row
        for row in rows
        if row.level == "project" and row.figures is None and row.project and row.project.is_open
    )
