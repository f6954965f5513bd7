"""Fields of a model without an effect."""

from object_detection.builders import model_builder
from object_detection.config import families, ranges, reading, walk
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.system import private_names


def unread(model: DetectionModel) -> list[tuple[str, str | None]]:
    """The paths of what the builders do not read, except those that the schema marks."""
    view = reading.tracked(model, 'model')
    families.needs(view)
    with private_names.graph_without_values():
        model_builder.build(view)
    known = {
        found.path
        for found in walk.set_fields(model, path='model')
        if ranges.options(found.field).is_unread
    }
    return [(path, reason) for path, reason in reading.unread(view) if path not in known]
