"""Encodes the image ids of a COCO file as text that distinguishes numbers from texts."""

import json
from typing import Any


def to_text(image_id: Any) -> str:
    """Returns image/source_id for an `images.id`, which `from_text` converts back.

    Numbers and texts are written unchanged, except texts that look like JSON: the text "12" keeps
    its quotation marks, so that it differs from the number 12.
    """
    if isinstance(image_id, str) and from_text(image_id) == image_id:
        return image_id
    return json.dumps(image_id)


def from_text(text: str) -> int | float | str:
    """Returns the `images.id` from which a source id was made.

    A text is a number only if it is a JSON number: "000123" remains a text.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_id = isinstance(value, int | float | str) and not isinstance(value, bool)
    # NaN is not equal to itself, so it cannot be an id.
    return value if is_id and value == value and json.dumps(value) == text else text
