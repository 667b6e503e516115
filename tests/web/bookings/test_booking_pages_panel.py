"""The booking panel: one line in, options out, and one booking however often the form is sent."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from allocation.models import Node, Series, WorkSpeed
from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, parse_ask
from allocation.rules.ask.line.text import document_text, duration_text
from billing.rules import Period
from tenants.models import Membership, Quota, Role
from tenants.web.frame import zone_of
from tests.builders import a_member, a_project, a_tenant
from tests.roles import as_system
from tests.web.bookings.panel import OPTION, asked, bookings_of, form_of, panel_client, panel_site
from tests.web.flat import flat

pytestmark = pytest.mark.turn
CATALOGUE = Catalogue((ClassEntry("h100", "H100 80 GB", (), 81_559, ("1g.10gb", "3g.40gb")),))


@pytest.mark.django_db
def test_a_line_of_text_is_answered_with_a_price_and_its_effect_on_the_budget() -> None:
    today = timezone.now().date()
    page = asked(panel_site(period=Period(today, today + timedelta(days=9))), q="2 h100 6h")
    assert "€57.60" in page
    assert "€942.40 left after this" in page
    assert re.search(r'data-button="Book \d\d:\d\d – .*\d\d:\d\d for €57\.60"', page)


@pytest.mark.django_db
def test_what_was_not_understood_is_underlined_and_nothing_is_offered() -> None:
    page = asked(panel_site(), q="2 h100 6h <b>blub</b>")
    assert re.search('<u class="unknown" title="[^"]+">&lt;b&gt;blub&lt;/b&gt;</u>', page)
    assert "“&lt;b&gt;blub&lt;/b&gt;” is not understood." in page
    assert '?q=2%20h100%206h" title="2 h100 6h" data-example>' in page, "one click leaves it out"
    assert OPTION.search(page) is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "says"),
    [("h100", "Add a duration"), ("6h", "Name a class of GPU"), ("2 h100 0h", "min")],
)
def test_what_is_missing_or_wrong_is_said_beside_the_line(text: str, says: str) -> None:
    assert says in asked(panel_site(), q=text)


@pytest.mark.django_db
def test_changed_fields_write_the_line_anew() -> None:
    page = asked(
        panel_site(),
        q="2 h100 6h same node",
        by="fields",
        count="3",
        classes="h100",
        profile="",
        length="90m",
    )
    assert 'data-text="3 h100 1h30m same node"' in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong",
    [
        {"count": "0"},
        {"count": "²"},
        {"length": "soon"},
        {"classes": ""},
        {"classes": "h100 " * 99},
    ],
)
def test_fields_that_make_no_sense_are_refused_in_words(wrong: dict[str, str]) -> None:
    fields = {"count": "1", "classes": "h100", "profile": "", "length": "6h"} | wrong
    page = asked(panel_site(), q="1 h100 6h", by="fields", **fields)
    assert 'class="err"' in page or "refusal" in page or OPTION.search(page)


@pytest.mark.django_db
def test_the_chosen_option_is_booked_once_however_often_the_form_is_sent() -> None:
    member = panel_site()
    form = form_of(member, asked(member, q="2 h100 6h"))
    client = panel_client(member)
    first = client.post(f"/t/{member.tenant.slug}/book", form)
    again = client.post(f"/t/{member.tenant.slug}/book", form)
    (booking,) = bookings_of(member)
    assert first.headers["Location"] == again.headers["Location"]
    assert first.headers["Location"].endswith(f"/bookings/{booking.label}")
    assert (booking.name, booking.hold_amount) == ("run-1", Decimal("57.6"))
    page = client.get(first.headers["Location"]).content.decode()
    assert "Undo and release €57.60" in page


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["1 h100 1h", "1 h100 every day at 9:00 for 1h 2 times"])
@pytest.mark.parametrize(
    "change",
    [{"name": "run-2"}, {"labels": "team=vision"}, {"external_ref": "GPU-7"}, {"option": "spot 1 h100 1h"}],
)
def test_another_form_with_the_same_key_is_refused_and_books_nothing(
    text: str, change: dict[str, str]
) -> None:
    member = panel_site()
    form = form_of(member, asked(member, q=text))
    client, address = panel_client(member), f"/t/{member.tenant.slug}/book"
    assert client.post(address, form).status_code == 302
    before = [(each.id, each.name) for each in bookings_of(member)]
    again = client.post(address, form | change)
    page = flat(again.content.decode())
    assert (again.status_code, "This form was sent before with other values" in page) == (422, True)
    assert client.post(address, form).status_code == 302, "the same one is a repetition"
    assert [(each.id, each.name) for each in bookings_of(member)] == before
    assert f'name="key" value="{form["key"]}"' not in page, "the next one books"


@pytest.mark.django_db
def test_another_person_with_the_same_key_makes_a_booking_of_their_own() -> None:
    member = panel_site()
    assert member.project is not None
    colleague = a_member(member.project)
    form = form_of(member, asked(member, q="1 h100 1h"))
    for each in (member, colleague):
        panel_client(each).post(f"/t/{member.tenant.slug}/book", form)
    assert {booking.owner_id for booking in bookings_of(member)} == {
        member.user_id,
        colleague.user_id,
    }


@pytest.mark.django_db
def test_beside_the_timeline_the_answer_is_a_fragment_with_an_undo() -> None:
    member = panel_site()
    form = form_of(member, asked(member, q="1 h100 1h"))
    response = panel_client(member).post(f"/t/{member.tenant.slug}/book", form, headers={"X-Fragment": "1"})
    (booking,) = bookings_of(member)
    page = flat(response.content.decode())
    assert page.startswith(f'<div class="in made" data-text="" data-made="{booking.label}">')
    assert f"/bookings/{booking.label}/cancel" in page


@pytest.mark.django_db
def test_a_budget_that_does_not_reach_is_said_before_and_refused_after_the_click() -> None:
    member = panel_site(amount="10")
    form = {
        "option": "standard 2 h100 6h",
        "key": "0" * 32,
        "project": member.project.slug if member.project else "",
        "q": "2 h100 6h",
    }
    response = panel_client(member).post(f"/t/{member.tenant.slug}/book", form)
    assert response.status_code == 409
    assert "refusal" in response.content.decode()
    assert bookings_of(member) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"option": ""}, 422),
        ({"option": "standard"}, 422),
        ({"option": "standard nonsense"}, 422),
        ({"option": "gold 1 h100 1h"}, 422),
        ({"key": "x"}, 422),
        ({"project": "no-such"}, 404),
    ],
)
def test_a_bent_form_books_nothing(change: dict[str, str], status: int) -> None:
    member = panel_site()
    form = form_of(member, asked(member, q="1 h100 1h")) | change
    response = panel_client(member).post(f"/t/{member.tenant.slug}/book", form)
    assert response.status_code == status
    assert bookings_of(member) == []


@pytest.mark.django_db
def test_a_project_of_somebody_else_is_not_there() -> None:
    member = panel_site()
    foreign = a_project(a_tenant(), "secret")
    hidden = a_project(member.tenant, "hidden")
    client = panel_client(member)
    for project in (foreign, hidden):
        query = {"q": "1 h100 1h", "project": project.slug}
        assert client.get(f"/t/{member.tenant.slug}/book", query).status_code == 404


@pytest.mark.django_db
def test_a_viewer_is_told_why_there_is_nothing_to_book_with() -> None:
    member = a_member(a_project(), Role.VIEWER)
    page = asked(member, q="1 h100 1h")
    assert "You can&#x27;t book yet" in page or "You can't book yet" in page
    assert OPTION.search(page) is None


@pytest.mark.django_db
def test_the_field_opens_a_booking_by_its_number() -> None:
    member = a_member(a_project())
    response = panel_client(member).get(f"/t/{member.tenant.slug}/book", {"q": " bk-12 "})
    assert response.headers["Location"] == f"/t/{member.tenant.slug}/bookings/BK-12"


@given(
    count=st.integers(1, 64),
    profile=st.sampled_from([None, "1g.10gb", "3g.40gb"]),
    minutes=st.integers(1, 7 * 24 * 60),
    starts_in=st.one_of(st.none(), st.integers(5, 14 * 24 * 60)),
    together=st.sampled_from(["any", "domain", "node", "rack"]),
)
def test_the_line_written_for_an_ask_means_that_ask(
    count: int, profile: str | None, minutes: int, starts_in: int | None, together: str
) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    ask = AskDocument.from_json(
        {
            "count": count,
            "classes": ["h100"],
            "profile": profile,
            "together": together,
            "required": together != "any",
            "duration": minutes * 60,
            "starts": None
            if starts_in is None
            else (now + timedelta(minutes=starts_in)).strftime("%Y-%m-%dT%H:%M:00Z"),
        }
    )
    zone = zone_of("Asia/Kathmandu")
    text = document_text(ask, zone)
    assert parse_ask(text, catalogue=CATALOGUE, now=now, zone=zone).document() == ask


def test_lengths_are_written_as_people_type_them() -> None:
    assert [duration_text(s) for s in (60, 5400, 21_600, 86_400, 694_800)] == [
        "1m",
        "1h30m",
        "6h",
        "1d",
        "1w1d1h",
    ]


SERIES_LINE = "1 h100 every day 9-11 3 times"


def _series_page(member: Membership) -> str:
    page = asked(member, q=SERIES_LINE)
    sent = form_of(member, page)
    answer = panel_client(member).post(f"/t/{member.tenant.slug}/book", sent, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.django_db
def test_what_repeats_is_priced_for_all_its_dates_and_booked_with_one_button() -> None:
    member = panel_site()
    page = asked(member, q=SERIES_LINE)
    assert 'data-button="Book 3 dates for €28.80"' in page
    assert "Every day, 3 times: 3 dates" in page
    understood = re.search(r"Understood:</b> ?([^<]*)", page)
    assert understood is not None
    assert re.fullmatch(
        r"1 × H100 for 2 h, every day, 3 dates from \w{3} \d+ \w{3} to \w{3} \d+ \w{3}, each 09:00 – 11:00\.",
        understood[1].strip(),
    ), understood[1]
    page = _series_page(member)
    assert "3 of 3 dates" in page
    assert "€28.80 held" in page
    assert len(bookings_of(member)) == 3
    assert page.count("/bookings/BK-") >= 3
    booking = bookings_of(member)[0]
    detail = panel_client(member).get(f"/t/{member.tenant.slug}/bookings/{booking.label}")
    assert "one date of a series" in detail.content.decode()


@pytest.mark.django_db
def test_dates_that_a_rule_refuses_are_said_before_the_click() -> None:
    """The tier books four weeks ahead: the line of the dates until then is one click."""
    member = panel_site()
    page = asked(member, q="1 h100 22-6 every day 40 times")
    assert "of 40 dates can&#x27;t be booked" in page
    (line,) = re.findall(r'title="(1 h100 from [^"]* 06:00 [^"]*)"\s+data-example>2\d dates</a>', page)
    shorter = asked(member, q=line)
    assert "can&#x27;t be booked" not in shorter
    assert "Book 2" in shorter


@pytest.mark.django_db
def test_the_repeat_fields_write_the_line_and_default_to_two_weeks() -> None:
    member = panel_site()
    fields = {"by": "fields", "count": "1", "classes": "h100", "profile": "", "length": "2h"}
    page = asked(member, q="1 h100 2h at 9", often="weekdays", until="", **fields)
    assert "every weekday until 20" in page
    assert '<option value="weekdays" selected>Every weekday</option>' in page
    once = asked(member, q=SERIES_LINE, often="", until="", **fields)
    assert "dates for" not in once
    page = asked(member, q="1 h100 2h at 9", often="days", days="blue moons", **fields)
    assert re.search('id="f-days"[^>]*value="blue moons"[^>]*aria-describedby="days-note"', page)
    assert '<p class="err" id="days-note">Use days of the month' in page
    kept = asked(member, q="1 h100 every 2 weeks 9-11 2 times", often="text", until="", **fields)
    assert "every 2 weeks 2 times" in kept


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "fields", "keeps_end"),
    [
        ("1 h100 22-6 every day 3 times", {}, True),
        ("1 h100 8h at 22:00 every day 3 times", {}, False),
        ("1 h100 22-6", {"by": "fields", "length": "8h", "often": "daily"}, True),
        ("1 h100 22-6", {"by": "fields", "length": "7h", "often": "daily"}, False),
    ],
)
def test_the_button_books_nights_with_the_end_that_was_said(
    text: str, fields: dict[str, str], *, keeps_end: bool
) -> None:
    member = panel_site()
    if fields:
        fields |= {"count": "1", "classes": "h100", "profile": "", "until": ""}
    page = asked(member, q=text, **fields)
    assert "dates for €" in page
    sent = form_of(member, page)
    assert panel_client(member).post(f"/t/{member.tenant.slug}/book", sent).status_code == 302
    with as_system():
        assert Series.objects.get().keeps_end is keeps_end


@pytest.mark.django_db
def test_a_series_without_a_time_of_day_is_told_what_it_lacks() -> None:
    member = panel_site()
    fields = {"by": "fields", "count": "1", "classes": "h100", "profile": "", "length": "2h"}
    page = asked(member, q="1 h100 2h", often="daily", until="", **fields)
    assert "like 9-17" in page or "as in “9-17”" in page
    assert OPTION.search(page) is None


@pytest.mark.django_db
def test_the_page_of_a_series_takes_all_dates_back_for_its_owner_only() -> None:
    member = panel_site()
    _series_page(member)
    series = bookings_of(member)[0].series_id
    assert series is not None
    address = f"/t/{member.tenant.slug}/series/sr_{series.hex}"
    assert member.project is not None
    viewer = a_member(member.project, Role.VIEWER)
    assert "Cancel every date" not in panel_client(viewer).get(address).content.decode()
    assert panel_client(viewer).post(f"{address}/cancel").status_code == 403
    outsider = a_member(a_project(a_tenant()))
    assert panel_client(outsider).get(address).status_code == 404
    page = panel_client(member).post(f"{address}/cancel", follow=True).content.decode()
    assert "3 dates are cancelled" in page
    assert {booking.state for booking in bookings_of(member)} == {"cancelled"}


@pytest.mark.django_db
def test_an_option_says_its_chance_of_a_pause_and_what_was_counted() -> None:
    page = asked(panel_site(), q="1 h100 1h")
    assert "pause risk not known" in page
    assert "too few past bookings to tell" in page


@pytest.mark.django_db
def test_a_kind_of_work_is_chosen_in_the_fields_and_written_into_the_line() -> None:
    member = panel_site()
    with as_system():
        WorkSpeed.objects.create(workload="training", gpu_class_id="h100", thousandths=1000)
    page = asked(
        member,
        q="1 h100 2h",
        by="fields",
        count="1",
        classes="h100",
        profile="",
        length="2h",
        workload="training",
    )
    assert "1 h100 2h kind:training" in page
    assert "<option selected>training</option>" in page
    sent = form_of(member, page)
    panel_client(member).post(f"/t/{member.tenant.slug}/book", sent)
    (booking,) = bookings_of(member)
    assert booking.ask["workload"] == "training"


@pytest.mark.django_db
def test_a_place_is_named_in_the_fields_written_into_the_line_and_kept_by_the_booking() -> None:
    member = panel_site()
    fields = {"by": "fields", "count": "1", "classes": "h100", "profile": "", "length": "2h"}
    with as_system():
        (node,) = Node.objects.values_list("name", flat=True)
    page = asked(member, q="1 h100 2h", **fields, pin=f"{node}/2, {node}/3")
    assert f"1 h100 2h on {node}/2 or {node}/3" in page
    assert f'value="{node}/2 {node}/3" list="pins"' in page
    assert f'<option value="{node}"></option><option value="{node}/0">' in page
    assert '<details class="exactly" open>' in page
    panel_client(member).post(f"/t/{member.tenant.slug}/book", form_of(member, page))
    (booking,) = bookings_of(member)
    assert booking.ask["pin"] == [f"{node}/2", f"{node}/3"]
    shown = panel_client(member).get(f"/t/{member.tenant.slug}/bookings/{booking.label}")
    assert f"(pinned to GPU 2 of {node} or GPU 3 of {node})" in shown.content.decode()


@pytest.mark.django_db
def test_a_place_that_there_is_not_is_refused_beside_the_fields() -> None:
    page = asked(panel_site(), q="1 h100 2h on gpu-zz-9")
    assert "There is no node or GPU called gpu-zz-9." in page
    assert OPTION.search(page) is None


@pytest.mark.django_db
def test_what_is_wrong_has_its_own_sentence_and_lines_that_are_right_as_one_click() -> None:
    member = panel_site()
    page = asked(member, q="2 rtx 4090 6h")
    assert "This site has no rtx 4090. Available: H100." in page
    assert "?q=2%20h100%206h" in page
    page = asked(member, q="1.5 h100 2h")
    assert "1.5 is not a number of GPUs. Do you mean 1 or 2?" in page
    assert re.search(r'\?q=1%20h100%202h" title="1 h100 2h" data-example>1</a>', page)
    page = asked(member, q="2 h100")
    assert re.search(r"\?q=2%20h100%201h", page), "a length is one click, too"


@pytest.mark.django_db
def test_a_line_that_is_one_click_is_within_the_quota() -> None:
    member = panel_site()
    with as_system():
        Quota.objects.update(guaranteed_units=3 * 56_000, borrow_limit_units=0)
    page = asked(member, q="many h100 4h")
    assert 'title="3 h100 4h" data-example>3 h100 4h</a>' in page
    assert 'title="4 h100 4h"' not in page
    assert 'title="8 h100 4h"' not in page


@pytest.mark.django_db
def test_the_echo_and_the_button_name_the_day_that_is_not_today() -> None:
    member = panel_site()
    day = timezone.now().astimezone(zone_of(member.user.time_zone)) + timedelta(days=3)
    for text in (f"1 h100 14:00-18:00 {day:%A}", f"1 h100 {day:%d %b} from 14:00 to 18:00"):
        page = asked(member, q=text)
        assert f"exactly {day:%a %d %b} 14:00 to {day:%a %d %b} 18:00" in page
        assert f'data-button="Book {day:%a} {day.day} {day:%b} 14:00 – 18:00 for' in page


@pytest.mark.django_db
def test_a_tier_in_the_line_is_chosen_and_a_choice_takes_it_out_of_the_line() -> None:
    member = panel_site()
    page = asked(member, q="1 h100 1h spot")
    assert '<option value="spot" selected>' in page
    assert OPTION.search(page)[1].startswith("spot ")  # type: ignore[index]
    changed = asked(member, q="1 h100 1h spot", tier="standard", by="choice")
    assert 'data-text="1 h100 1h"' in changed
    assert '<option value="standard" selected>' in changed


@pytest.mark.django_db
def test_the_cheapest_option_comes_first_where_the_line_asks_for_it() -> None:
    member = panel_site()
    page = asked(member, q="cheapest h100 1h", tier="standard")
    prices = [float(each) for each in re.findall(r'<span class="p">€([0-9.]+)</span>', page)]
    assert prices[:2] == sorted(prices[:2])
    assert OPTION.search(page)[1].startswith("spot ")  # type: ignore[index]
    chosen = asked(member, q="cheapest h100 1h", tier="standard", by="choice")
    assert next(OPTION.finditer(chosen))[1].startswith("standard ")
    plain = asked(member, q="1 h100 1h", tier="standard")
    assert OPTION.search(plain)[1].startswith("standard ")  # type: ignore[index]


@pytest.mark.django_db
def test_a_start_that_is_too_far_ahead_has_the_latest_one_as_a_button_above_the_fields() -> None:
    member = panel_site()
    page = asked(member, q="1 h100 2h on 1 jan 2099 9:00")
    assert "start at most 28 days from now; the latest start at that time of day is" in page
    assert re.search(r"data-example>See prices for \w{3} \d+ \w{3}( \d{4})? \d\d:\d\d</a>", page)
    assert page.index("start at most 28 days") < page.index(
        'id="f-class"' if 'id="f-class"' in page else "<fieldset"
    )
