"""Builds and runs what a config describes, without values, to find its errors.

The module loads no TensorFlow; its functions do.
"""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import Message

from object_detection.config import families, reading
from object_detection.errors import raise_if_any, sentences
from object_detection.models import image_channels

if TYPE_CHECKING:
    from object_detection.core.groundtruth import Groundtruth
    from object_detection.meta_architectures.detection_model import DetectionModel

Unread = tuple[tuple[str, str | None], ...]

# Of a batch that is only traced.
_NUM_IMAGES = 2
_NUM_OBJECTS = 3


def problems(
    build: Callable[..., Any], config: Message, path: str, *arguments: object
) -> Iterator[str]:
    """Yields the error of a builder of cheap objects as a sentence that begins with a field path.

    Args:
      build: called as `build(config, *arguments)`; what it returns is not used.
      config: the message to build from.
      path: path of the message in the pipeline config.
      *arguments: further arguments of the builder.
    """
    try:
        build(config, *arguments)
    except ValueError as error:
        message, own = str(error), config.DESCRIPTOR.full_name
        if message.startswith(own):
            message = path + message.removeprefix(own)
        elif not message.startswith(path):
            message = f'{path}: {message}'
        yield message.replace(f'{config.DESCRIPTOR.file.package}.', '')


class _Checked(NamedTuple):
    stages: bool
    unread: Unread


# A job asks several times about its config. Errors are not kept: files may be mended.
_checked: dict[tuple[bytes, int], _Checked] = {}
_MAX_CHECKED = 64


def check(model: Message, num_channels: int, *, stages: bool = False) -> Unread:
    """Builds a detector in a graph, without values and memory.

    Args:
      model: `pipeline.model`.
      num_channels: of the images that it takes.
      stages: whether its stages are traced too, which takes as long again or longer.

    Returns:
      The path of each field that is set but that nothing reads, and why, as of `reading.unread`.

    Raises:
      UserError: for what cannot be built or run; the message begins with the path of a message.
    """
    key = model.SerializeToString(deterministic=True), num_channels
    found = _checked.get(key)
    if found is None or (stages and not found.stages):
        # Random states, which seeds of initializers are drawn from, stay as they are.
        state = random.getstate()
        try:
            found = _Checked(stages, _check(model, num_channels, stages))
        finally:
            random.setstate(state)
        if len(_checked) >= _MAX_CHECKED:
            _checked.clear()
        _checked[key] = found
    return found.unread


def _check(model: Message, num_channels: int, stages: bool) -> Unread:
    from object_detection.builders import model_builder
    from object_detection.system import private_names

    view = reading.tracked(model, 'model')
    family, options = families.find(view), families.options(view)
    family.loss_names(options)
    mask_size = family.needs(options).example_options.get('mask_crop_size', 0)

    try:
        with private_names.graph_without_values():
            with image_channels.scope(num_channels):
                detector = model_builder.build(view)
            detector.build_variables()
            if stages:
                trace(detector, mask_size)
    except ValueError as error:
        raise_if_any(dict.fromkeys(reading.located(options, each) for each in sentences(error)))
    return tuple(reading.unread(view))


def trace(detector: 'DetectionModel', mask_size: int) -> None:
    """Runs all stages of a detector in the current graph, with images as its resizer makes them.

    Args:
      detector: the detector, with its variables.
      mask_size: side of the crops of masks in the ground truth; 0: masks are as large as images.

    Raises:
      ValueError: if something does not fit.
    """
    import tensorflow as tf

    placeholder = tf.compat.v1.placeholder
    side = {
        name: placeholder(spec.dtype, [_NUM_IMAGES, *spec.shape[1:]])
        for name, spec in detector.side_inputs().items()
    }
    # A resizer that makes images grey takes colours.
    channels = max(detector.num_image_channels, image_channels.RGB)
    images, shapes = detector.preprocess(
        placeholder(tf.float32, [_NUM_IMAGES, None, None, channels])
    )
    detector.postprocess(detector.predict(images, shapes, False, **side), shapes)
    truth = _groundtruth(detector, images, mask_size)
    seeds = tf.zeros([_NUM_IMAGES, 2], tf.int32)
    detector.loss(detector.predict(images, shapes, True, truth, seeds, **side), truth, seeds)


def _groundtruth(detector: 'DetectionModel', images: Any, mask_size: int) -> 'Groundtruth':
    """Returns placeholders of all that losses may ask for."""
    import tensorflow as tf

    from object_detection.core.fields import InputFields as F
    from object_detection.core.groundtruth import Groundtruth

    num_classes, points, parts = detector.num_classes, [None], [None]
    floats: dict[str, list[int | None]] = {
        F.GROUNDTRUTH_BOXES: [4],
        F.GROUNDTRUTH_CLASSES: [num_classes],
        F.GROUNDTRUTH_WEIGHTS: [],
        F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS: [],
        F.GROUNDTRUTH_TEMPORAL_OFFSETS: [2],
        F.GROUNDTRUTH_TRACK_MATCH_FLAGS: [],
        F.GROUNDTRUTH_DP_POINTS: [*parts, 2],
        F.GROUNDTRUTH_DP_SURFACE: [*parts, 2],
    }
    others = {
        F.GROUNDTRUTH_IS_CROWD: (tf.bool, []),
        F.GROUNDTRUTH_TRACK_IDS: (tf.int32, []),
        F.GROUNDTRUTH_DP_PART_IDS: (tf.int32, parts),
        F.GROUNDTRUTH_DP_NUM_POINTS: (tf.int32, []),
    }
    if detector.needs_keypoints:
        floats[F.GROUNDTRUTH_KEYPOINTS] = [*points, 2]
        floats[F.GROUNDTRUTH_KEYPOINT_WEIGHTS] = points
        floats[F.GROUNDTRUTH_KEYPOINT_DEPTHS] = points
        floats[F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS] = points
    if detector.needs_masks and mask_size:
        others[F.GROUNDTRUTH_INSTANCE_MASK_CROPS] = (tf.uint8, [mask_size, mask_size])
    elif detector.needs_masks:
        others[F.GROUNDTRUTH_INSTANCE_MASKS] = (tf.uint8, list(images.shape[1:3]))
    specs = {name: (tf.float32, shape) for name, shape in floats.items()} | others
    batch = {
        name: tf.compat.v1.placeholder(dtype, [_NUM_IMAGES, _NUM_OBJECTS, *shape])
        for name, (dtype, shape) in specs.items()
    }
    for name in (
        F.GROUNDTRUTH_IMAGE_CLASSES,
        F.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
        F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
    ):
        batch[name] = tf.compat.v1.placeholder(tf.float32, [_NUM_IMAGES, num_classes])
    return Groundtruth.from_batch(batch)
