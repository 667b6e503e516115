"""Every fault of a structured request has a sentence."""

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument
from allocation.words.refusals import coded_text
from tests.rules.test_ask_document import FULL, REFUSED


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_field_has_a_sentence(what: str) -> None:
    name, value, _ = REFUSED[what]
    with pytest.raises(AskError) as refused:
        AskDocument.from_json(FULL | {name: value})
    assert coded_text(refused.value.text).endswith(".")
