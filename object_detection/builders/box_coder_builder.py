"""Builds the box coder that a BoxCoder proto describes."""

from object_detection.config.oneof import build_named
from object_detection.errors import UserError
from object_detection.protos import box_coder_pb2
from object_detection.targets.box_coders import (
    DistanceBoxCoder,
    FasterRcnnBoxCoder,
    KeypointBoxCoder,
    MeanStddevBoxCoder,
    SquareBoxCoder,
)

_BOX_CODE_SIZE = 4

BoxCoder = (
    DistanceBoxCoder | FasterRcnnBoxCoder | KeypointBoxCoder | MeanStddevBoxCoder | SquareBoxCoder
)

BUILDERS = {
    'faster_rcnn_box_coder': lambda config: FasterRcnnBoxCoder(
        (config.y_scale, config.x_scale, config.height_scale, config.width_scale),
        config.max_log_size if config.HasField('max_log_size') else None,
    ),
    'keypoint_box_coder': lambda config: KeypointBoxCoder(
        config.num_keypoints,
        (config.y_scale, config.x_scale, config.height_scale, config.width_scale),
    ),
    'mean_stddev_box_coder': lambda config: MeanStddevBoxCoder(config.stddev),
    'square_box_coder': lambda config: SquareBoxCoder(
        (config.y_scale, config.x_scale, config.length_scale)
    ),
    'distance_box_coder': lambda config: DistanceBoxCoder(),
}


def build(config: box_coder_pb2.BoxCoder) -> BoxCoder:
    """Returns the box coder; raises a ValueError if none is set or its numbers do not fit."""
    return build_named(config, 'box_coder_oneof', BUILDERS)


def build_for_boxes(config: box_coder_pb2.BoxCoder) -> BoxCoder:
    """Returns the box coder for heads that predict four numbers per box; see `build`.

    Raises:
      ValueError: if none is set, its numbers do not fit, or its codes have another size.
    """
    coder = build(config)
    # Keypoints are not coded, be there none; distances are those of points.
    is_other = isinstance(coder, DistanceBoxCoder | KeypointBoxCoder)
    if coder.code_size != _BOX_CODE_SIZE or is_other:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}: expected faster_rcnn_box_coder or '
            f'mean_stddev_box_coder, which code a box with {_BOX_CODE_SIZE} numbers. '
            f'Received: {config.WhichOneof("box_coder_oneof")}.'
        )
    return coder
