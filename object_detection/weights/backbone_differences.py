"""What a ResNet of which a file holds the weights computes otherwise than a detector's backbone."""

import logging

import numpy as np
import tensorflow as tf

from object_detection.models.backbones.resnet_v1 import Options, Padding, options_of
from object_detection.models.feature_extractors.two_stage import subtract_means
from object_detection.weights.interfaces import Detector

_logger = logging.getLogger(__name__)

_MORE_BELOW = 'more at the bottom and on the right'
_PADDED = {
    Padding.SYMMETRIC: f'alike on all sides and the first pooling {_MORE_BELOW}',
    Padding.SAME: f'{_MORE_BELOW}, and so is the first pooling',
    Padding.SYMMETRIC_ALL: 'alike on all sides, and so is the first pooling',
}


def warn(description: str, theirs: Options, detector: Detector, remark: str = '') -> None:
    """Logs what no change of weights makes up for, if there is anything.

    Args:
      description: of the file.
      theirs: how its network computes; `frozen_stages` do not count.
      detector: that gets the weights.
      remark: what is to be said in addition.
    """
    backbone = detector.parts().get('backbone')
    ours = options_of(backbone) if backbone is not None else None
    if ours is None:
        return
    differences, fields = [], []
    if theirs.stride_in_1x1 != ours.stride_in_1x1:
        there, here = '3x3 convolution', '1x1 before'
        if theirs.stride_in_1x1:
            there, here = '1x1 convolution', '3x3 after it'
        differences.append(
            f'there the stages 3 to 5 have their stride at the first {there}, here at the {here}'
        )
        fields.append(f'stride_in_1x1: {str(theirs.stride_in_1x1).lower()}')
    if theirs.padding is not ours.padding:
        differences.append(
            f'there strided convolutions are padded {_PADDED[theirs.padding]}, '
            f'here {_PADDED[ours.padding]}'
        )
        fields.append(f'padding_mode: {theirs.padding.name}')
    if differences:
        _logger.warning(
            '%s is of a network that differs from the backbone here: %s%s. Set '
            'model.faster_rcnn.feature_extractor { %s }, or train all stages with these weights; '
            'frozen ones do not give the features that they were made for.',
            description,
            '; '.join(differences),
            remark,
            ' '.join(fields),
        )


def warn_of_images(description: str, detector: Detector) -> None:
    """Logs where a detector on a ResNet normalises images otherwise than by ImageNet's means.

    Args:
      description: of a file whose network does that, as Keras's and the reference's.
      detector: that gets the weights.
    """
    backbone = detector.parts().get('backbone')
    if backbone is None or options_of(backbone) is None:
        return
    ends = tf.constant([0.0, 255.0])[:, tf.newaxis, tf.newaxis, tf.newaxis] * tf.ones([1, 1, 1, 3])
    # Other digits of the means do not matter.
    if np.allclose(detector.normalize(ends), subtract_means(ends), atol=1.0):
        return
    _logger.warning(
        '%s is of a network that sees images less the means of ImageNet, which model.faster_rcnn.'
        'feature_extractor.preprocess changes: leave that field out, or train all stages with '
        'these weights.',
        description,
    )
