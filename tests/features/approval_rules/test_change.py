"""Changing an approval rule where it stands: on its row, and by PATCH with the version that was read."""

import re
from typing import Any

import pytest
from django.test import Client

from allocation.models import ApprovalRule
from tenants.models import AuditEntry
from tests.api.builders import Site, said
from tests.features.approval_rules.test_page import FORM, PAGE, reader, shown
from tests.roles import as_system

RULE: dict[str, Any] = {
    "name": "Nights",
    "min_cost": "12.50",
    "min_seconds": 5_400,
    "classes": ["h100"],
    "outside": {"weekdays": ["Mon"], "begins": "08:00", "ends": "18:00", "zone": "UTC"},
    "steps": [{"role": "lead", "needed": 2, "hours": 24}],
}


def added(site: Site, **more: object) -> dict[str, Any]:
    made: dict[str, Any] = said(site.admin.post("approval-rules", RULE | more))
    return made


def test_a_row_is_changed_where_it_stands(site: Site) -> None:
    admin = reader(site, "admin")
    rule = added(site)
    at = f"{PAGE}?edit={rule['id']}"
    page = admin.get(at).content.decode()
    assert 'value="1h 30m"' in page
    assert 'value="12.5"' in page
    assert "(UTC)" in page
    assert "Add rule" not in page
    form = FORM | {"act": "change", "rule": rule["id"], "version": "1", "name": "Long nights", "min_cost": ""}
    answer = admin.post(at, form | {"min_gpus": "0"})
    assert answer.status_code == 422
    assert re.findall(r'<p class="err" id="new-(\w+)-note">', shown(answer)) == ["min_gpus"]
    assert 'value="Long nights"' in shown(answer)
    assert admin.post(at, form).status_code == 302
    text = shown(admin.get(PAGE))
    assert "Long nights" in text
    assert "12.50" not in text
    (now,) = said(site.admin.get("approval-rules"))["items"]
    assert (now["id"], now["version"], now["outside"]["zone"]) == (rule["id"], 2, "UTC")
    # Somebody else still has the page from before.
    stale = admin.post(at, form | {"name": "Short nights"})
    assert stale.status_code == 422
    assert "Long nights was changed or ended in the meantime." in shown(stale)
    with as_system():
        entry = AuditEntry.objects.get(action="approval_rule.changed")
    assert entry.detail["before"]["name"] == "Nights"
    assert entry.detail["name"] == "Long nights"


@pytest.mark.parametrize("who", ["researcher", "lead", "viewer"])
def test_a_rule_of_the_organisation_is_changed_by_admins_only(site: Site, who: str) -> None:
    rule = added(site)
    form = FORM | {"act": "change", "rule": rule["id"], "version": "1"}
    assert reader(site, who).post(PAGE, form).status_code == 403
    assert "?edit=" not in reader(site, who).get(PAGE).content.decode()
    assert getattr(site, who).send("PATCH", f"approval-rules/{rule['id']}", {"version": 1}).status_code == 403
    assert site.outsider.send("PATCH", f"approval-rules/{rule['id']}", {"version": 1}).status_code == 404


def test_a_patch_changes_what_it_names_in_the_version_that_was_read(site: Site) -> None:
    rule = added(site)
    at = f"approval-rules/{rule['id']}"

    def sent(body: object) -> Any:  # noqa: ANN401 (the test client's response)
        return site.admin.send("PATCH", at, body)

    changed = said(sent({"version": 1, "outside": None, "min_gpus": 4}))
    kept = {name for name in rule if rule[name] == changed[name]}
    assert rule.keys() - kept == {"version", "outside", "min_gpus"}
    # Nothing different is no new version, and a repetition has an old one.
    assert said(sent({"version": 2, "min_gpus": 4}))["version"] == 2
    assert sent({"version": 1, "min_gpus": 8}).status_code == 409
    assert said(sent({"version": 2, "steps": [{"role": "admin"}]}))["steps"][0]["role"] == "admin"
    wrong: dict[str, int] = {}
    for body, status in (
        ({"min_gpus": 4}, 400),
        ({"version": 3, "steps": []}, 422),
        ({"version": 3, "name": None}, 400),
        ({"version": 3, "min_gpus": 10**12}, 422),
        ({"version": 3, "min_gpus": None, "min_cost": None, "min_seconds": None, "classes": []}, 422),
        ({"version": 10**30}, 422),
        ({"version": 3, "project": "climate"}, 422),
        ({"version": 3, "created": None}, 400),
        ([], 400),
    ):
        found = sent(body).status_code
        wrong |= {} if found == status else {str(body): found}
    assert wrong == {}
    said(site.admin.post(f"{at}/end"))
    assert sent({"version": 3, "min_gpus": 1}).status_code == 409


def test_steps_that_the_form_cannot_show_are_not_changed_by_it(site: Site) -> None:
    steps = [{"role": "lead", "hours": 24}, {"role": "admin", "hours": 48}]
    rule = added(site, steps=steps)
    page = reader(site, "admin").get(f"{PAGE}?edit={rule['id']}").content.decode()
    assert "Save" not in page
    assert "?edit=" not in page
    for odd in ("x", "00000000-0000-0000-0000-000000000000", "%00"):
        assert Client().get(f"{PAGE}?edit={odd}").status_code == 302
        assert reader(site, "admin").get(f"{PAGE}?edit={odd}").status_code in (200, 400)
    assert (
        reader(site, "admin").post(PAGE, FORM | {"act": "change", "rule": "x", "version": "1"}).status_code
        == 404
    )
    with as_system():
        assert ApprovalRule.objects.get().version == 1
