"""What a family says about its anchors and what they are matched with; loads no TensorFlow."""

from typing import NamedTuple

from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.image_resizer_pb2 import ImageResizer
from object_detection.protos.matcher_pb2 import Matcher


class AnchorOptions(NamedTuple):
    """The anchors of a model.

    Attributes:
      path: path of the generator's message, from the message of the model on.
      generator: makes them.
      resizer: resizes the images that they lie on.
      threshold: least IoU with an object at which an anchor is matched to it.
      is_inside_only: whether a training leaves out anchors that cross the edge of the image.
      sees_static_size: whether a size that the resizer gives to all images decides where centres
        are.
    """

    path: str
    generator: AnchorGenerator
    resizer: ImageResizer
    threshold: float
    is_inside_only: bool = False
    sees_static_size: bool = False


def matched_threshold(matcher: Matcher, default: float) -> float:
    """Returns the threshold of a matcher: 0 for one that matches every object, whatever its IoU."""
    kind = matcher.WhichOneof('matcher_oneof')
    if kind is None:
        return default
    argmax = matcher.argmax_matcher
    return 0.0 if kind != 'argmax_matcher' or argmax.ignore_thresholds else argmax.matched_threshold
