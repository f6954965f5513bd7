"""Fields of a model without an effect."""

import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.config import families, ranges, reading, walk
from object_detection.protos.model_pb2 import DetectionModel


def unread(model: DetectionModel) -> list[tuple[str, str | None]]:
    """The paths of what the builders do not read, except those that the schema marks."""
    view = reading.tracked(model, 'model')
    families.needs(view)
    with tf.Graph().as_default():
        model_builder.build(view)
    known = {
        found.path
        for found in walk.set_fields(model, path='model')
        if ranges.options(found.field).is_unread
    }
    return [(path, reason) for path, reason in reading.unread(view) if path not in known]
