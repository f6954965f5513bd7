"""Integer labels and texts of a data set's categories in its examples."""

import json
from typing import Any

from object_detection.data.annotated_image import ClassLabel
from object_detection.errors import UserError

# Ids of a label map have 32 bits.
_MAX_LABEL = 2**31 - 1


def from_categories(categories: list[dict[str, Any]]) -> dict[Any, ClassLabel]:
    """Returns category id -> label of the categories that are classes.

    Labels are the ids if all ids are integers >= 1. Otherwise labels are derived from the list of
    categories only, so that the files of a data set's splits agree:

    - If the ids are whole numbers (or text of whole numbers) whose minimum is less than 1, all are
      increased so that the minimum becomes 1.
    - Otherwise labels are the positions in the list, from 1 on.

    A category 0 that all others name as their `supercategory`, as Roboflow writes it, is not a
    class; the others keep their ids.

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
        category_id: ClassLabel(label, named[category_id])
        for category_id, label in zip(ids, labels, strict=True)
    }


def are_renumbered(labels: dict[Any, ClassLabel]) -> bool:
    """Whether labels differ from the category ids."""
    return any(category_id != label.label for category_id, label in labels.items())


def _group_of_all(categories: list[dict[str, Any]]) -> Any:
    """Returns the id 0 of a category that denotes the whole data set, or None."""
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
    """Returns ids as distinct numbers that fit into a label map; None if that is impossible."""
    try:
        numbers = [int(category_id) for category_id in ids]
    except ValueError:
        return None
    are_whole = all(float(i) == number for i, number in zip(ids, numbers, strict=True))
    fits = all(abs(number) < _MAX_LABEL for number in numbers)
    return numbers if are_whole and fits and len(set(numbers)) == len(numbers) else None


def texts(categories: list[dict[str, Any]]) -> dict[Any, str]:
    """Returns category id -> a unique name for look-ups in a label map.

    Readers find the class of an object by its text. So control characters and spaces at the ends
    are removed, an empty name becomes `category_ID`, and `_ID` is appended to repeated names.

    Raises:
      ValueError: if an id is given twice.
    """
    group = _group_of_all(categories)
    by_id: dict[Any, str] = {}
    # The name of the whole data set is free for a class.
    for category in sorted(categories, key=lambda each: group is not None and each['id'] == group):
        category_id = category['id']
        if category_id in by_id:
            raise _bad_id(category)
        text = clean(str(category['name'])) or f'category_{category_id}'
        while text in by_id.values():
            text = f'{text}_{category_id}'
        by_id[category_id] = text
    return {category['id']: by_id[category['id']] for category in categories}


def clean(name: str) -> str:
    return ''.join(letter if letter.isprintable() else ' ' for letter in name).strip()


def _bad_id(category: dict[str, Any]) -> UserError:
    return UserError(
        f'Category ids must be different. Received twice: {json.dumps(category)[:200]}.'
    )
