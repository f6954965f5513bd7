"""The row of a small family like FCOS: what a config says of it, without TensorFlow."""

import dataclasses

from object_detection.config import families
from object_detection.core.detector import Detector
from object_detection.protos.model_pb2 import ExperimentalModel

LOSSES = ('Loss/classification_loss', 'Loss/localization_loss', 'Loss/center_loss')


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a config.

    Attributes:
      backbone: name of a backbone, of the table or of keras.applications.
      depth_multiplier: factor of its numbers of channels.
      levels: the first and the last of the pyramid; level l has stride 2**l.
      width: number of channels of the pyramid and of the towers.
      num_layers: number of convolutions of a tower.
      size: an object is matched on a level if the longest of its distances is at most this number
        of strides, and on no finer level.
      radius: points this many strides around the centre of an object are matched to it.
      score_threshold, iou_threshold, max_detections: of the suppression.
    """

    backbone: str = 'resnet_v1_18'
    depth_multiplier: float = 0.25
    levels: tuple[int, ...] = (3, 5)
    width: int = 32
    num_layers: int = 2
    size: float = 2.0
    radius: float = 1.5
    score_threshold: float = 0.05
    iou_threshold: float = 0.6
    max_detections: int = 20

    def __post_init__(self):
        if len(self.levels) != 2 or not 1 <= self.levels[0] <= self.levels[1]:
            raise ValueError(
                f'levels: expected the first and the last, from 1 on. Received: {self.levels}.'
            )
        if self.size <= 0:
            raise ValueError(f'size: expected above 0. Received: {self.size:g}.')


def build(message: ExperimentalModel, is_training: bool) -> Detector:
    """Builds the detector; see `build.build`, which loads TensorFlow."""
    from tests.meta_architectures.fcos_like import build

    return build.build(message, is_training)


FAMILY = families.ModelFamily(
    title='FCOS-like', build=build, loss_names=lambda message: LOSSES, options=Options
)
