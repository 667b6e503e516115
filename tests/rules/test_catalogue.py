"""The catalogue of rules: whole, unambiguous, with a meaning for every fact."""

from solver.reasons.catalogue import BY_CODE, BY_ID, FACTS, RULES


def test_ids_and_codes_are_there_once() -> None:
    assert len(BY_ID) == len(BY_CODE) == len(RULES)
    numbers = [int(rule.id.removeprefix("R")) for rule in RULES]
    assert numbers == sorted(numbers), "a new rule goes to the end, with a number of its own"


def test_every_fact_of_a_rule_is_described_and_there_once() -> None:
    named = [(rule.code, name) for rule in RULES for name in (*rule.evidence, *rule.optional)]
    assert len(named) == len(set(named))
    assert {name for _, name in named} == set(FACTS)


def test_what_only_the_operator_sets_is_the_operators() -> None:
    # Tenants' shares and caps are given by operators, projects' by their tenant's admin.
    owners = {code: BY_CODE[code].owner for code in ("class_not_open", "tenant_quota")}
    assert set(owners.values()) == {"operator"}
    assert BY_CODE["project_quota"].owner == "tenant_admin"
