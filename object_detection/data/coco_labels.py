"""The integer labels and texts that stand for a data set's categories in its examples."""

import json
from typing import Any, NamedTuple


class CategoryLabel(NamedTuple):
    """What the examples hold for a category.

    Attributes:
      label: integer >= 1.
      text: name; no other category of the data set has the same.
    """

    label: int
    text: str


def from_categories(categories: list[dict[str, Any]]) -> dict[Any, CategoryLabel]:
    """Returns category id -> label: the id itself, and the text of `texts`.

    Raises:
      ValueError: if an id is not an integer >= 1 or is given twice.
    """
    for category in categories:
        if not isinstance(category['id'], int) or category['id'] < 1:
            raise _bad_id(category)
    return {
        category_id: CategoryLabel(category_id, text)
        for category_id, text in texts(categories).items()
    }


def texts(categories: list[dict[str, Any]]) -> dict[Any, str]:
    """Returns category id -> the category's name, made fit to be looked up.

    Readers look objects up by their text. So control characters and spaces at the ends go, an
    empty name becomes `category_ID`, and of equal names all but the first get `_ID` appended.

    Raises:
      ValueError: if an id is given twice.
    """
    by_id: dict[Any, str] = {}
    for category in categories:
        category_id = category['id']
        if category_id in by_id:
            raise _bad_id(category)
        text = clean(str(category['name'])) or f'category_{category_id}'
        while text in by_id.values():
            text = f'{text}_{category_id}'
        by_id[category_id] = text
    return by_id


def clean(name: str) -> str:
    return ''.join(letter if letter.isprintable() else ' ' for letter in name).strip()


def _bad_id(category: dict[str, Any]) -> ValueError:
    return ValueError(
        'Category ids must be different integers >= 1, as 0 stands for the background in '
        'a label map; a label map of your own (--label_map, or label_map_path of a reader) can '
        f'give the categories other numbers by name. Received: {json.dumps(category)[:200]}.'
    )
