"""The integer labels and texts that stand for a data set's categories in its examples."""

import json
from typing import Any, NamedTuple

from object_detection.errors import UserError

# Ids of a label map have 32 bits.
_MAX_LABEL = 2**31 - 1


class CategoryLabel(NamedTuple):
    """What the examples hold for a category.

    Attributes:
      label: integer >= 1.
      text: name; no other category of the data set has the same.
    """

    label: int
    text: str


def from_categories(categories: list[dict[str, Any]]) -> dict[Any, CategoryLabel]:
    """Returns category id -> label of the categories that are classes.

    Labels are the ids where all of those are integers >= 1. Otherwise they are made of the
    categories alone, so that the files of a data set's splits agree:

    - Whole numbers, as such or as text, of which the lowest is less than 1: all are raised so that
      it becomes 1.
    - Other ids: the places in the list, from 1 on.

    A category 0 that all others name as their `supercategory`, as Roboflow writes for the whole
    data set, is no class; the others keep their ids.

    Raises:
      ValueError: if an id is given twice.
    """
    named = texts(categories)
    group = _group_of_all(categories)
    ids = [category_id for category_id in named if group is None or category_id != group]
    numbers = _whole_numbers(ids)
    if numbers is None:
        labels = list(range(1, len(ids) + 1))
    else:
        lift = max(0, 1 - min(numbers, default=1))
        labels = [number + lift for number in numbers]
    return {
        category_id: CategoryLabel(label, named[category_id])
        for category_id, label in zip(ids, labels, strict=True)
    }


def are_renumbered(labels: dict[Any, CategoryLabel]) -> bool:
    """Whether labels are others than the category ids."""
    return any(category_id != label.label for category_id, label in labels.items())


def _group_of_all(categories: list[dict[str, Any]]) -> Any:
    """Returns the id 0 of the category that stands for the whole data set, or None."""
    for category in categories:
        others = [other for other in categories if other is not category]
        is_group = category['id'] == 0 and isinstance(category['id'], int)
        if (
            is_group
            and others
            and all(other.get('supercategory') == category['name'] for other in others)
        ):
            return category['id']
    return None


def _whole_numbers(ids: list[Any]) -> list[int] | None:
    """Returns ids as different numbers that fit into a label map; None if they are not that."""
    try:
        numbers = [int(category_id) for category_id in ids]
    except ValueError:
        return None
    are_whole = all(float(i) == number for i, number in zip(ids, numbers, strict=True))
    fits = all(abs(number) < _MAX_LABEL for number in numbers)
    return numbers if are_whole and fits and len(set(numbers)) == len(numbers) else None


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


def _bad_id(category: dict[str, Any]) -> UserError:
    return UserError(
        f'Category ids must be different. Received twice: {json.dumps(category)[:200]}.'
    )
