"""The page of formats says what the records say."""

from __future__ import annotations

from pathlib import Path

from tests.support.builders import every_document
from tools.formats import page, record_classes

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """A changed record changes the page: run make docs."""
    assert (ROOT / "docs" / "formats.md").read_text() == page()


def test_every_document_is_on_the_page() -> None:
    """No kind of document is undocumented."""
    names = {kind.__name__ for kind in record_classes()}
    assert {type(document).__name__ for document in every_document()} <= names
