"""Checks of the fields of augmentation steps; all raise ValueError."""

import math

from object_detection.errors import expected

# Greatest height or width of an image that a step makes, pixels, and greatest factor of a size: a
# few images fit into the memory of a machine.
MAX_SIDE = 2**14
MAX_FACTOR = 32.0


def check_order(name: str, step: object, *fields: str, limit: float = math.inf) -> None:
    """Checks that two fields of a step are 0 or more, finite, in order, and at most `limit`."""
    check_bounds(name, {field: getattr(step, field) for field in fields}, '<=', limit)


def check_positive_order(name: str, step: object, *fields: str, limit: float = math.inf) -> None:
    """Checks that two fields of a step are above 0, finite, in order, and at most `limit`."""
    check_bounds(name, {field: getattr(step, field) for field in fields}, '<', limit)


def check_bounds(
    step: str, bounds: dict[str, float], relation: str = '<', limit: float = math.inf
) -> None:
    """Checks two values, by name; `relation` is that of 0 to the first one, < or <=."""
    (least_name, least), (greatest_name, greatest) = bounds.items()
    is_above = least > 0.0 if relation == '<' else least >= 0.0
    if not (is_above and least <= greatest <= limit and greatest < math.inf):
        order = f'0 {relation} {least_name} <= {greatest_name}'
        end = '' if limit == math.inf else f' <= {limit:g}'
        raise expected(step, f'{order}{end}', f'{least:g} and {greatest:g}')
