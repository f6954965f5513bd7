"""The row of a small family like DETR: what a config says of it, without TensorFlow."""

import dataclasses

from object_detection.config import families
from object_detection.core.detector import Detector
from object_detection.protos.model_pb2 import ExperimentalModel

LOSSES = ('Loss/classification_loss', 'Loss/l1_loss', 'Loss/giou_loss')


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a config.

    Attributes:
      backbone: name of a backbone, of the table or of keras.applications.
      depth_multiplier: factor of its numbers of channels.
      level: of its map that is taken, of stride 2**level.
      width: number of channels of the transformer, a multiple of 4 and of `heads`.
      heads: number of attention heads.
      encoder_layers, decoder_layers: numbers of layers; the decoder has one or more.
      queries: number of boxes that are predicted for each image.
    """

    backbone: str = 'resnet_v1_18'
    depth_multiplier: float = 0.5
    level: int = 3
    width: int = 64
    heads: int = 4
    encoder_layers: int = 1
    decoder_layers: int = 2
    queries: int = 20

    def __post_init__(self):
        for name in ('heads', 'decoder_layers', 'queries'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name}: expected at least 1. Received: {getattr(self, name)}.')
        if self.width < 1 or self.width % 4 or self.width % self.heads:
            raise ValueError(
                f'width: expected a multiple of 4 and of heads ({self.heads}). '
                f'Received: {self.width}.'
            )


def build(message: ExperimentalModel, is_training: bool) -> Detector:
    """Builds the detector; see `build.build`, which loads TensorFlow."""
    from tests.meta_architectures.detr_like import build

    return build.build(message, is_training)


FAMILY = families.ModelFamily(
    title='DETR-like', build=build, loss_names=lambda message: LOSSES, options=Options
)
