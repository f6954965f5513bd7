"""Tells mask heads over crops of a pyramid from mask heads over the box classifier's features."""

from collections.abc import Mapping, Sequence

_FIELD = 'model.faster_rcnn.masks_from_crops'
# The layer that sees the features is the first of these that there is.
_FIRST_LAYERS = ('conv_1', 'conv_upsampled', 'masks')
_PROJECTION = 'fpn/projection_'

Shapes = Mapping[str, Sequence[int]]


def advice(there: Shapes, here: Shapes) -> str:
    """Says which setting makes a mask head fit, if it was made for other features; else ''.

    Args:
      there, here: shapes of the variables of a checkpoint and of a model, under the same names.
    """
    theirs, ours = _input_depth(there), _input_depth(here)
    if None in (theirs, ours) or theirs == ours:
        return ''
    if theirs == _pyramid_depth(there):
        return (
            f'Its masks are predicted from crops of the feature pyramid: set {_FIELD}: true to '
            'predict them so.'
        )
    if ours == _pyramid_depth(here):
        return (
            f'Its masks are predicted from what the box classifier makes of crops: set {_FIELD}: '
            'false and remove model.faster_rcnn.mask_roi_align to predict them so.'
        )
    return ''


def _input_depth(shapes: Shapes) -> int | None:
    """Channels of the features that masks are predicted from; None without a mask head."""
    for layer in _FIRST_LAYERS:
        for name, shape in shapes.items():
            if name.endswith(f'mask_head/{layer}/kernel') and len(shape) == 4:
                return shape[2]
    return None


def _pyramid_depth(shapes: Shapes) -> int | None:
    for name, shape in shapes.items():
        if _PROJECTION in name and name.endswith('/kernel'):
            return shape[-1]
    return None
