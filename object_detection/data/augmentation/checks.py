"""Checks of the fields of augmentation steps."""

from object_detection.errors import UserError


def check_share(step: str, **share: float) -> None:
    """Checks that a field, given by its name, is in [0, 1] (raises ValueError)."""
    ((field, value),) = share.items()
    if not 0.0 <= value <= 1.0:
        raise UserError(f'{step}.{field}: expected 0 to 1. Received: {value:g}.')


def check_order(step: str, **bounds: float) -> None:
    """Checks that two fields, by name, are 0 or more and in order (raises ValueError)."""
    (least_name, least), (greatest_name, greatest) = bounds.items()
    if not 0.0 <= least <= greatest:
        raise UserError(
            f'{step}: expected 0 <= {least_name} <= {greatest_name}. '
            f'Received: {least:g} and {greatest:g}.'
        )
