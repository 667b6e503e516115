"""Searches of a directory and members of its groups: nothing that is sent is left aside."""

import pytest

from tests.web.sign_on.test_directory import GROUPS, USERS
from tests.web.sign_on.test_directory_spellings import ADA, Directory, directory, lab

pytestmark = pytest.mark.django_db
__all__ = ["directory", "lab"]


@pytest.mark.parametrize(
    "member",
    [{"value": "ada@helix", "type": "Group"}, {"value": "ada@helix", "active": False}],
    ids=str,
)
def test_a_member_is_a_person_and_has_no_attribute_that_is_not_known(
    directory: Directory, lab: str, member: dict[str, object]
) -> None:
    before = directory.send("GET", lab).said
    whole = {"displayName": "lab", "members": [member]}
    added = directory.patch(lab, {"op": "add", "path": "members", "value": [member]})
    for answer in (directory.send("PUT", lab, whole), directory.send("POST", GROUPS, whole), added):
        assert (answer.status_code, answer.said["scimType"]) == (400, "invalidValue"), answer.content
    assert directory.send("GET", lab).said == before


@pytest.mark.parametrize(
    "query",
    [
        'FILTER=userName eq "nobody"',
        'Filter=userName eq "nobody"',
        'filter=userName eq "nobody"&filter=userName eq "ada"',
        "filter=",
        "q=nobody",
        "startIndex=x",
    ],
)
def test_a_search_is_never_wider_than_it_was_asked(directory: Directory, query: str) -> None:
    for path in (USERS, GROUPS, ADA):
        if path != ADA or query.startswith(("FILTER", "Filter", "q")):
            assert directory.send("GET", f"{path}?{query}").status_code == 400, path


def test_pages_begin_at_one_and_have_no_less_than_nothing(directory: Directory) -> None:
    """RFC 7644, 3.4.2.4."""
    for query, shown in (("startIndex=-5&count=1", 1), ("count=-1", 0), ("sortBy=userName&count=2", 2)):
        page = directory.send("GET", f"{USERS}?{query}").said
        assert (page["startIndex"], page["itemsPerPage"]) == (1, shown), query
