"""A site's catalogue by REST, from a node that reported to a class that people can ask for."""

import io

from django.core.management import call_command

from allocation.models import Node
from tenants.models import User
from tests.api.builders import Api, Site, said
from tests.roles import as_owner, as_system
from tests.services.reported import a_gpu, an_inventory, enrolled

L4 = {"product_name": "NVIDIA L4", "gpu_class": "l4", "memory_mb": 23034}


def test_an_operator_names_what_a_node_reported_and_removes_what_nothing_uses(site: Site) -> None:
    enrolled(an_inventory(a_gpu(0, "NVIDIA L4")), "gpu-c1-01")
    reported = said(site.operator.get("gpu-models/reported"))["items"]
    assert [(row["product_name"], row["known"], row["model"]) for row in reported] == [
        ("NVIDIA L4", "l4", None)
    ]
    known = {row["slug"]: row for row in said(site.researcher.get("gpu-models/known"))["items"]}
    assert known["l4"]["pci_device_ids"] == ["27b8"]

    for api, path in ((site.admin, "gpu-models/l4"), (site.researcher, "gpu-models/reported")):
        answer = api.put(path, L4) if path.endswith("l4") else api.get(path)
        assert answer.status_code == 403
    refused = site.operator.put("gpu-models/l4", L4)
    assert (refused.status_code, said(refused)["param"]) == (422, "gpu_class")
    made = site.operator.put("gpu-classes/l4", {"label": "L4 24 GB"})
    assert (made.status_code, said(made)["label"]) == (200, "L4 24 GB")
    model = said(site.operator.put("gpu-models/l4", L4))
    # The driver's memory replaces what was said.
    assert (model["gpus"], model["memory_mb"], model["slices"]) == (1, 81_559, [])
    assert site.operator.put("gpu-models/l4", {**L4, "switch_seconds": -1}).status_code == 422
    with as_system():
        node = Node.objects.get(name="gpu-c1-01")
        assert node.gpus.get().gpu_class_id == "l4"

    used = site.operator.delete("gpu-classes/l4")
    assert (used.status_code, said(used)["code"]) == (409, "class_in_use")
    assert site.operator.delete("gpu-models/l4").status_code == 409
    assert site.operator.put("gpu-classes/l5", {"label": "Mistyped"}).status_code == 200
    assert site.operator.delete("gpu-classes/l5").status_code == 204
    assert site.operator.delete("gpu-classes/l5").status_code == 404


def test_an_operator_makes_a_tenant_whose_admin_signs_in_and_a_token_there(site: Site) -> None:
    wanted = {"slug": "new", "name": "New Lab", "username": "nia", "admin_name": "Nia"}
    made = said(site.operator.post("tenants", wanted, idempotency_key="once"))
    replayed = said(site.operator.post("tenants", wanted, idempotency_key="once"))
    assert (replayed["slug"], replayed["password"]) == ("new", None)
    with as_system():
        assert User.objects.get(username="nia").check_password(made["password"])
    assert said(site.operator.post("tenants", {**wanted, "slug": "n2"}))["password"] is None
    refused = site.operator.post("tenants", {**wanted, "slug": "n3", "username": "x/"})
    assert (refused.status_code, said(refused)["param"]) == (422, "username")
    assert site.admin.get("tenants").status_code == 403
    assert {"new", "n2"} < {row["slug"] for row in said(site.operator.get("tenants"))["items"]}
    printed = io.StringIO()
    with as_owner():
        name = User.objects.get(is_staff=True).username
        call_command("operator_token", username=name, tenant="new", stdout=printed)
    assert said(Api(printed.getvalue().strip()).get("me"))["is_operator"]
