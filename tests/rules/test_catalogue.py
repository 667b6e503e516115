"""The catalogue of rules: whole, unambiguous, and the same that the solver cites."""

from allocation.rules.rule_catalogue import BY_CODE, BY_ID, RULES
from allocation.solver.reasons.explain import RULES as CITED


def test_ids_and_codes_are_there_once() -> None:
    assert len(BY_ID) == len(BY_CODE) == len(RULES)
    numbers = [int(rule.id.removeprefix("R")) for rule in RULES]
    assert numbers == sorted(numbers), "a new rule goes to the end, with a number of its own"


def test_the_solver_cites_rules_of_the_catalogue_under_their_ids_and_checks() -> None:
    assert {code: (BY_CODE[code].id, BY_CODE[code].check) for code in CITED} == CITED


def test_a_rule_says_what_it_means_in_one_sentence() -> None:
    assert all(rule.wording[0].isupper() and rule.wording.endswith(".") for rule in RULES)
    assert not any("preempt" in rule.wording.lower() for rule in RULES)


def test_what_only_the_operator_sets_is_the_operators() -> None:
    # Tenants' shares and caps are given by operators, projects' by their tenant's admin.
    owners = {code: BY_CODE[code].owner for code in ("class_not_open", "tenant_quota")}
    assert set(owners.values()) == {"operator"}
    assert BY_CODE["project_quota"].owner == "tenant_admin"
