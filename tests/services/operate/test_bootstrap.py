"""A site from nothing: one file, an agent that enrolled before it, and the first booking runs."""

import io
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from allocation.models import Gpu, GpuModel, MigPlacement, Node, PolicyVersion, WorkSpeed
from allocation.rules.site.known_models import known_catalogue
from allocation.rules.site.site_file import SiteFaults, example_read, site_read
from allocation.services.bookings.creation import booking_request
from allocation.services.operate.site_setup import Outcome, site_apply
from billing.models import Price, PriceBook
from tenants.models import AuditEntry, GpuClass, Membership, OperatorRole, Project, Quota, Tenant, Tier, User
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, actor_now
from tests.builders_allocation import NOW, a_booking_request, an_ask
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.services.plant import NAME, a_plant, fresh

SITE = f"""
models = ["h100-80gb"]
approve = ["{NAME}"]

[operator]
username = "olaf"
name = "Olaf Berg"

[[tenant]]
slug = "helix"
name = "Helix Institute"
admin = {{ username = "tanja", name = "Tanja Roth" }}
quota.h100 = {{ guaranteed = 1 }}

[[tenant.project]]
slug = "first"
name = "First project"
budget = "500.00"
"""
PRICE = "[prices.h100]\n"
TIER = '[[tier]]\nslug = "x"\nname = "X"\n'
NOWHERE = 'password_file = "/nowhere"'


def applied(text: str = SITE, now: datetime = NOW) -> Outcome:
    with as_owner():
        return site_apply(site=site_read(text), now=now)


def run(path: Path, *options: str) -> str:
    said = io.StringIO()
    with as_owner():
        call_command("bootstrap", "--from", str(path), *options, stdout=said)
    return said.getvalue()


@pytest.mark.turn
def test_from_an_empty_database_to_the_first_running_booking(real_db: Servers, tmp_path: Path) -> None:
    with a_plant(tmp_path, gpus=1) as plant:
        with as_system():
            assert not GpuModel.objects.exists()
            node = Node.objects.get()
        assert (node.state, node.state_reason[:8]) == (Node.State.QUARANTINED, "GPU 0 is")

        outcome = applied()
        assert outcome.count("differs") == 0
        assert set(outcome.passwords) == {"olaf", "tanja"}
        with as_system():
            assert Node.objects.get().state == Node.State.READY
            live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
            assert live.document == {"borrow_windows": {"*": 4 * 3_600}}
            assert live.created_by == User.objects.get(username="olaf")
            # The geometry is what the driver said.
            assert MigPlacement.objects.filter(profile="3g.40gb").count() == 2
            tanja, project = User.objects.get(username="tanja"), Project.objects.get()
        actor = actor_now(tanja.id, "helix")
        with tenant_tx(actor.tenant_id):
            booking = booking_request(actor=actor, request=a_booking_request(project, an_ask()), now=NOW)
        plant.round()
        assert fresh(booking).state == "active"


@pytest.mark.django_db
class TestOneFile:
    def test_a_second_run_changes_nothing_and_a_different_site_is_told_of(self) -> None:
        assert applied().count("made") > 8
        with as_system():
            entries = AuditEntry.objects.count()
            assert Membership.objects.get().user.username == "tanja"
            assert Quota.objects.get().guaranteed_units == UNITS_PER_GPU
            typical = known_catalogue().models["h100-80gb"].price
            assert Price.objects.get(tier="standard").per_gpu_hour == typical
            assert WorkSpeed.objects.get(workload="training").thousandths == 1000
        again = applied()
        assert (again.count("made"), again.count("differs"), again.passwords) == (0, 1, {})
        # Only the node is not there yet, in this site without agents.
        assert [change.what for change in again.changes if change.kind == "differs"] == [
            f"node {NAME}: its agent has not been enrolled yet"
        ]
        with as_system():
            assert AuditEntry.objects.count() == entries
            Tenant.objects.update(name="Helix GmbH")
            Quota.objects.update(guaranteed_units=0)
        other = applied(SITE.replace("500.00", "600.00") + '[prices.h100]\nspot = "1.00"\n')
        expected = "\n".join(change.what for change in other.changes if change.kind == "differs")
        assert "name is Helix GmbH here, Helix Institute in the file" in expected
        assert "guaranteed_units is 0 here, 56000 in the file" in expected
        assert "500.000000 here, 600.00 in the file" in expected
        assert "h100 in spot is 1.6800 here, 1.00 in the file" in expected
        with as_system():
            assert PriceBook.objects.count() == 1

    def test_what_is_new_in_the_file_is_added_beside_what_is_there(self) -> None:
        applied()
        more = (
            SITE.replace('["h100-80gb"]', '["h100-80gb", "l4"]')
            + """
[[model]]
slug = "x100"
product_name = "NVIDIA X100"
class = "x100"
memory_mb = 98304
reset_seconds = 20
[prices.x100]
assured = "9"
standard = "8"
spot = "7.1234"
[speeds.training]
h100 = 1
x100 = 2.5
"""
        )
        later = NOW + timedelta(days=1)
        assert applied(more, later).count("made") == 4
        assert applied(more, later).count("made") == 0
        with as_system():
            assert PriceBook.objects.count() == 2
            assert GpuModel.objects.get(slug="x100").mode_switch == "reset"
            assert WorkSpeed.objects.get(workload="training", gpu_class="x100").thousandths == 2500
            assert WorkSpeed.objects.get(workload="training", gpu_class="l4").thousandths == 120

    def test_the_command_checks_does_and_prints_passwords_once(self, tmp_path: Path) -> None:
        path, secret = tmp_path / "site.toml", tmp_path / "olaf"
        secret.write_text("a long enough pass phrase\n")
        text = example_read().replace('# password_file = "/run/secrets/olaf"', f'password_file = "{secret}"')
        path.write_text(text)
        with pytest.raises(SystemExit):
            run(path, "--check")
        with as_system():
            assert not User.objects.exists()
        said = run(path)
        assert "+ tenant helix" in said
        assert "There is one operator, who publishes changes of prices alone." in said
        assert "Password of olaf" not in said
        password = said.rpartition("Password of tanja (shown once): ")[2].strip()
        with as_system():
            assert User.objects.get(username="olaf").check_password("a long enough pass phrase")
            assert User.objects.get(username="tanja").check_password(password)
            assert {tier.slug for tier in Tier.objects.all()} == {"assured", "standard", "spot"}
            assert set(GpuClass.objects.values_list("slug", flat=True)) == {"h100", "l40s"}
        assert "0 to create, 10 unchanged.\n" in run(path, "--check")
        assert run(path).endswith("0 created, 10 unchanged.\n")

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            ("[operator]", "[operator", "5: Expected ']'"),
            ('name = "Olaf Berg"', "nome = 1", "7: operator.nome: There is no such key."),
            ("[operator]", "[oper]", "'operator' is required"),
            ("guaranteed = 1", "guaranteed = -1", "13: tenant[0].quota.h100.guaranteed"),
            ("quota.h100", "quota.h1", "13: tenant[0].quota.h1: There is no such GPU"),
            ("h100-80gb", "h100-81gb", "2: models[0]: The shipped catalogue has no"),
            ("500.00", "5e2", "18: tenant[0].project[0].budget"),
            ("[operator]", f'{PRICE}gold = "1"\n[operator]', "6: prices.h100.gold: There is no"),
            ("[operator]", 'currency = "JPY"\n[operator]', "5: currency"),
            ("[operator]", 'currency = "CHF"\n[operator]', " prices.h100.assured: There is no typical price"),
            ("[operator]", f"{TIER}priority = 5000\n[operator]", "8: tier[0].priority: A pri"),
            ('"olaf"', f'"olaf"\n{NOWHERE}', "7: operator.password_file: The file /nowhere can't"),
            ("tanja", "t/a", "12: tenant[0].admin.username: A sign-in name"),
        ],
    )
    def test_a_fault_names_line_and_key_and_changes_nothing(
        self, tmp_path: Path, old: str, new: str, expected: str
    ) -> None:
        assert old in SITE
        path = tmp_path / "site.toml"
        path.write_text(SITE.replace(old, new))
        with pytest.raises(CommandError) as caught:
            run(path)
        where = "" if expected[0] in "' " else f"{path}:"
        assert f"{where}{expected}" in str(caught.value)
        with as_system():
            assert not User.objects.exists()
            assert not Gpu.objects.exists()

    def test_an_operator_by_command_signs_in_and_a_taken_name_is_refused(self) -> None:
        said = io.StringIO()
        with as_owner():
            call_command("createoperator", username="olaf", name="Olaf", stdout=said)
            password = said.getvalue().rpartition(": ")[2].strip()
            olaf = User.objects.get(username="olaf")
            assert olaf.is_staff
            assert olaf.check_password(password)
            with pytest.raises(CommandError, match="username: This sign-in name is taken"):
                call_command("createoperator", username="Olaf", name="Olaf")
            with as_owner():
                OperatorRole.objects.all().delete()
                User.objects.update(is_staff=False)
            with pytest.raises(SiteFaults, match="not an operator"):
                site_apply(site=site_read(SITE), now=NOW)
