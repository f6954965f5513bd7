"""Checks of the fields of augmentation steps; all raise ValueError."""

import math

from object_detection.errors import UserError

# Greatest height or width of an image that a step makes, pixels, and greatest factor of a size: a
# few images fit into the memory of a machine.
MAX_SIDE = 2**14
MAX_FACTOR = 32.0


def check_order(step: str, *, limit: float = math.inf, **bounds: float) -> None:
    """Checks that two fields, by name, are 0 or more, finite, in order, and at most `limit`."""
    _check_order(step, '<=', limit, bounds)


def check_positive_order(step: str, *, limit: float = math.inf, **bounds: float) -> None:
    """Checks that two fields, by name, are above 0, finite, in order, and at most `limit`."""
    _check_order(step, '<', limit, bounds)


def _check_order(step: str, relation: str, limit: float, bounds: dict[str, float]) -> None:
    (least_name, least), (greatest_name, greatest) = bounds.items()
    is_above = least > 0.0 if relation == '<' else least >= 0.0
    if not (is_above and least <= greatest <= limit and greatest < math.inf):
        end = '' if limit == math.inf else f' <= {limit:g}'
        raise UserError(
            f'{step}: expected 0 {relation} {least_name} <= {greatest_name}{end}. '
            f'Received: {least:g} and {greatest:g}.'
        )
