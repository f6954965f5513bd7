"""The ids of a COCO file's images as records hold them: text that tells numbers and texts apart."""

import json
from typing import Any


def to_text(image_id: Any) -> str:
    """Returns image/source_id for an `images.id`, from which `from_text` makes the id again.

    Numbers are written as they are and texts too, but for those that would be read as something
    else: the text "12" keeps its quotation marks beside the number 12.
    """
    if isinstance(image_id, str) and from_text(image_id) == image_id:
        return image_id
    return json.dumps(image_id)


def from_text(text: str) -> int | float | str:
    """Returns the `images.id` that a source id was made of.

    Only what is written as JSON writes it is a number: "000123" stays a text.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_id = isinstance(value, int | float | str) and not isinstance(value, bool)
    # NaN is equal to nothing, and so is no id.
    return value if is_id and value == value and json.dumps(value) == text else text
