"""One example of each rarer feature, so that its page has content from the start."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from uuid import UUID, uuid5

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.features.capacity.models import SprintRule
from allocation.features.capacity.sprints import SprintRuleTerms, sprint_rule_set
from allocation.features.jira.models import JiraConnection
from allocation.features.jira.services import (
    JIRA,
    JiraConnectionTerms,
    JiraProjectTerms,
    connection_create,
    project_set,
)
from allocation.models import (
    Allocation,
    ApprovalRule,
    Booking,
    Gpu,
    Maintenance,
    Series,
)
from allocation.points import Sprint, sprint_acts
from allocation.rules.approvals import Step
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import Repeat, series_request
from allocation.services.operate.drain import gpu_return
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_plan
from allocation.services.runs.pause_choices import booking_saved
from billing.rules import midnight
from devtools.demo.history import TimedAction
from devtools.demo.nodes import DemoFleet
from devtools.demo.week import (
    CLIMATE,
    CRYO,
    FOLDING,
    WORDS,
    ZONE,
    BookingText,
    People,
    owner_does,
    person,
    text_parsed,
)
from tenants.access import Actor
from tenants.features.saved_views.services import ViewTerms, view_save
from tenants.features.webhooks.services import (
    WebhookTerms,
    webhook_create,
    webhook_enabled_set,
    webhook_test,
    webhooks_of,
)
from tenants.models import ServiceAccount, User
from tenants.platform.wall import tenant_tx
from tenants.services.credentials.service_accounts import service_account_create
from tenants.services.sign_in.sessions import temporary_session

NAMESPACE = UUID("5b6f3a52-5f1b-5c4f-9a3c-1c7c1b0a6d4e")
HOUR = timedelta(hours=1)
# An uncorrectable memory error: the GPU is out of service until an operator returns it.
BROKEN, XID = "gpu-a1-01", 48
FANS = "gpu-c1-01"
RULE = "Large runs"
# Requests at the start of the demo, as (sign-in name, project, tier, text, name): a share of a
# GPU, one on borrowed GPUs that is paused when North Lab claims its guarantee, one by its kind of
# work, and three that have to queue.
NOW_ASKED = (
    ("mara", FOLDING, "standard", "0.25 l40s 3h", "label-check"),
    ("mara", WORDS, "spot", "1 h100 3h", "scaling-run"),
    ("tomas", WORDS, "standard", "1 a100 4h kind:training", "warm-up"),
    ("tomas", WORDS, "assured", "4 h100 nvlink 8h", "pretrain-7b-big"),
    ("mara", FOLDING, "standard", "5 h100 nvlink 6h", "protein-fold-big"),
    ("tomas", WORDS, "standard", "4 a100 nvlink 10h", "distil-big"),
    ("mara", FOLDING, "standard", "2 h100 nvlink 30h", "protein-fold-long"),
    # It waits for its project's quota, so the sprint rents a machine for it.
    ("mara", FOLDING, "standard", "2 h100 25m", "protein-fold-sprint"),
)


def current_requests(day: date) -> Iterator[BookingText]:
    """Yields the requests of a day's first start; the portal's next cycle decides on them."""
    for number, (owner, project, tier, text, name) in enumerate(NOW_ASKED):
        yield BookingText(uuid5(NAMESPACE, f"{day}/{number}"), name, owner, project, tier, text)


def feature_actions(people: People, fleet: DemoFleet, today: date) -> Iterator[TimedAction]:
    """Yields the actions of the week before `today`."""

    def at(days: int, hour: float) -> datetime:
        return midnight(today + timedelta(days=days)) + hour * HOUR

    def line(name: str, owner: str, project: tuple[str, str], tier: str, text: str) -> BookingText:
        key = uuid5(NAMESPACE, f"{today}/{name}")
        return BookingText(key, name, owner, project, tier, text)

    def on(days: int) -> str:
        return f"on {today + timedelta(days=days)}"

    # A whole node at the lowest price, until North Lab claims its guarantee.
    sweep = line("scaling-sweep", "mara", WORDS, "spot", "8 h100 4h")
    urgent = line("storm-front", "nils", CLIMATE, "standard", "2 h100 2h")
    yield TimedAction(at(-7, 0.5), partial(people.book, sweep))
    yield TimedAction(at(-7, 1.25), partial(people.book, urgent))
    yield TimedAction(at(-7, 1.27), owner_does(booking_saved, sweep.id))
    yield TimedAction(at(-7, 8.2), series_asked)
    # A GPU fails during a booking, and is returned to service a day later.
    screen = line("screening", "jonas", FOLDING, "standard", f"1 h100 5h at 10:00 {on(-3)}")
    yield TimedAction(at(-6, 9), partial(people.book, screen))
    yield TimedAction(at(-3, 11.3), partial(_gpu_breaks, fleet, screen.id))
    yield TimedAction(at(-2, 7.5), _gpus_return)
    # An extension, a no-show, and a share of a GPU.
    longer = line("finetune-long", "mara", WORDS, "standard", f"1 a100 4h at 13:00 {on(-2)}")
    yield TimedAction(at(-4, 15), partial(people.book, longer))
    yield TimedAction(at(-2, 15.4), owner_does(_booking_extends, longer.id))
    nobody = line("poster-figures", "ines", CRYO, "standard", f"1 a100-40 4h at 9:00 {on(-1)}")
    yield TimedAction(at(-2, 16.1), partial(people.book, nobody, starts_program=False))
    share = line("label-check", "mara", FOLDING, "standard", f"0.25 l40s 3h at 14:00 {on(-1)}")
    yield TimedAction(at(-1, 8.7), partial(people.book, share))
    yield TimedAction(at(-6, 7.6), partial(maintenance_planned, today - timedelta(days=4)))


def series_asked(now: datetime) -> None:
    """Books, once a month, a course that needs a GPU on two days of the week."""
    series_id = uuid5(NAMESPACE, f"{now:%Y-%m}/series")
    text = "1 l40s every mon,wed 9-11 4 times"
    parsed = text_parsed(text, now)
    if parsed.repeat is None or Series.objects.filter(id=series_id).exists():
        return
    tenant, project = FOLDING
    request = BookingRequest(project, "standard", parsed.document(first=True), "lab-course", ZONE, text)
    repeat = Repeat(parsed.repeat, is_partial=True, keeps_end=True)
    actor = person("mara", tenant)
    series_request(actor=actor, request=request, repeat=repeat, now=now, series_id=series_id)


def approval_rule_made(now: datetime) -> None:
    """Adds, once, a rule under which a booking of a day or more needs an approval."""
    actor = person("ada", "helix")
    if not ApprovalRule.objects.filter(tenant_id=actor.tenant_id).exists():
        steps = (Step("lead", hours=48, escalates=True),)
        terms = ApprovalRuleTerms(name=RULE, steps=steps, min_seconds=86_400)
        approval_rule_set(actor=actor, terms=terms, now=now)


def webhook_made(now: datetime) -> None:
    """Creates a webhook once, with a test in its log; it is off, because nothing listens there."""
    actor = person("ada", "helix")
    if webhooks_of(actor).exists():
        return
    terms = WebhookTerms(name="Example receiver", url="http://127.0.0.1:9/gpu", events=["booking.*"])
    webhook, _ = webhook_create(actor=actor, terms=terms, now=now)
    webhook_test(actor=actor, webhook_id=webhook.id, now=now)
    webhook_enabled_set(actor=actor, webhook_id=webhook.id, is_enabled=False, now=now)


def view_made(now: datetime) -> None:
    """Saves a view of bookings for everybody."""
    terms = ViewTerms(list="bookings", name="Everything that waits", query="state=waiting", is_shared=True)
    view_save(actor=person("ada", "helix"), terms=terms, now=now)


def service_account_made(now: datetime) -> None:
    """Creates a service account once, without a token: nobody would read it."""
    actor = person("ada", "helix")
    if ServiceAccount.objects.filter(tenant_id=actor.tenant_id).exists():
        return
    user = User.objects.get(id=actor.user_id)
    with temporary_session(user, now=now), tenant_tx(actor.tenant_id):
        service_account_create(
            actor=actor,
            credential=user.credential,
            name="Nightly benchmarks",
            project="protein-folding",
            role="researcher",
            now=now,
        )


def jira_connected(now: datetime) -> None:
    """Connects a Jira once, with one project; it is off, because no Jira is there."""
    actor = person("ada", "helix")
    if JiraConnection.objects.filter(tenant_id=actor.tenant_id).exists():
        return
    terms = JiraConnectionTerms(
        name="Helix Jira",
        url="http://127.0.0.1:9",
        flavour="data_center",
        token="none",  # noqa: S106 (of no site)
    )
    connection, _ = connection_create(actor=actor, terms=terms, now=now)
    project = JiraProjectTerms(
        project="protein-folding",
        owner="mara",
        tier="standard",
        act="book",
        request="{customfield_10050}",
        transitions={"active": "In Progress", "ended": "Done"},
        board=3,
        sprint_request="2 h100 {remaining}",
    )
    project_set(actor=actor, connection_id=connection.id, key="GPU", terms=project, now=now)
    webhook_enabled_set(actor=actor, webhook_id=connection.receiver_id, is_enabled=False, now=now, kind=JIRA)


def sprint_begun(now: datetime) -> None:
    """Lets sprints of protein folding rent, once, and starts one, as a message of Jira does."""
    actor = person("jonas", "helix")
    if SprintRule.objects.filter(tenant_id=actor.tenant_id).exists():
        return
    terms = SprintRuleTerms(mode="rent", gpu_class="h100", count=4, most_cost=Decimal(80), issue="GPU-1")
    rule = sprint_rule_set(actor=actor, project="protein-folding", terms=terms, now=now)
    sprint = Sprint(
        actor=person("mara", "helix"),
        project=rule.project,
        reference="http://127.0.0.1:9/secure/GHGoToBoard.jspa?sprintId=12",
        name="Sprint 12",
        ends=now + timedelta(days=10),
        is_started=True,
    )
    sprint_acts(sprint, now)


def maintenance_planned(day: date, now: datetime) -> None:
    """Plans maintenance in a night without bookings on the node."""
    begins = midnight(day) + 3 * HOUR
    if not Maintenance.objects.filter(ends__gt=now).exists():
        terms = MaintenanceTerms(begins, begins + 2 * HOUR, "New fans", node=FANS)
        maintenance_plan(operator=_operator(), terms=terms, now=now)


def _gpu_breaks(fleet: DemoFleet, key: UUID, now: datetime) -> None:
    places = Allocation.objects.filter(booking=key, state=Allocation.State.ACTIVE)
    found = places.filter(gpu__node__name=BROKEN).values_list("gpu__index", flat=True).first()
    if found is not None:
        fleet.gpu_error(BROKEN, found, XID, now)


def _gpus_return(now: datetime) -> None:
    for gpu in Gpu.objects.filter(needs_operator=True):
        gpu_return(operator=_operator(), gpu=gpu, note="Reset; memory tests pass", now=now)


def _booking_extends(*, actor: Actor, booking: Booking, now: datetime) -> None:
    if booking.planned_ends is not None:
        booking_extend(booking=booking, until=booking.planned_ends + HOUR, now=now, actor=actor)


def _operator() -> User:
    return User.objects.get(username="olaf")
