"""Places the layers of weights files in detectors, and compares the networks' computations.

The stages of a detector's backbone may belong to several components
(`VariableNames.backbone_parts`); in an image classifier they all belong to one.
"""

import logging
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.detector import Detector
from object_detection.models.backbones.resnet_v1 import Options, Padding, options_of
from object_detection.models.image_values import subtract_means

# The third convolution of a block, which has two otherwise.
_BOTTLENECK_LAYER = 'conv2_block1_3_conv'
_logger = logging.getLogger(__name__)

_MORE_BELOW = 'more at the bottom and on the right'
_PADDED = {
    Padding.SYMMETRIC: f'alike on all sides and the first pooling {_MORE_BELOW}',
    Padding.SAME: f'{_MORE_BELOW}, and so is the first pooling',
    Padding.SYMMETRIC_ALL: 'alike on all sides, and so is the first pooling',
}


def name_in_detector(layer_path: str, names: Collection[str], parts: Sequence[str]) -> str:
    """Returns the name of a backbone variable in a detector.

    Args:
      layer_path: 'conv5_block1_1_conv/kernel'.
      names: names of the detector's variables.
      parts: components of the detector that may contain layers of its backbone.

    Returns:
      The matching one of `names`, else the name in the first of `parts`.
    """
    candidates = [f'{part}/{layer_path}' for part in parts]
    return next((name for name in candidates if name in names), candidates[0])


def warn_of_differences(
    description: str, theirs: Options, detector: Detector, remark: str = ''
) -> None:
    """Logs differences between two networks that no conversion of weights can compensate.

    Args:
      description: description of the file.
      theirs: options of the file's network; `frozen_stages` is ignored.
      detector: detector that receives the weights.
      remark: text to append to the message.
    """
    names = detector.variable_names
    backbone = detector.parts().get(names.backbone_parts[0])
    ours = options_of(backbone) if backbone is not None else None
    if ours is None:
        return
    differences, fields = [], []
    has_bottlenecks = any(layer.name == _BOTTLENECK_LAYER for layer in backbone.layers)
    if has_bottlenecks and theirs.stride_in_1x1 != ours.stride_in_1x1:
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
            '%s is of a network that differs from the backbone here: %s%s. Set %s { %s }, or train '
            'all stages with these weights; frozen ones do not give the features that they were '
            'made for.',
            description,
            '; '.join(differences),
            remark,
            names.backbone_field,
            ' '.join(fields),
        )


def warn_of_images(description: str, detector: Detector) -> None:
    """Logs if a ResNet detector normalises images differently than by ImageNet's means.

    Args:
      description: description of a file whose network subtracts ImageNet's means, such as files of
        Keras and of the reference.
      detector: detector that receives the weights.
    """
    names = detector.variable_names
    backbone = detector.parts().get(names.backbone_parts[0])
    if not names.subtracts_means or backbone is None or options_of(backbone) is None:
        return
    ends = tf.constant([0.0, 255.0])[:, tf.newaxis, tf.newaxis, tf.newaxis] * tf.ones([1, 1, 1, 3])
    # Differences in further digits of the means do not matter.
    if np.allclose(detector.normalize(ends), subtract_means(ends), atol=1.0):
        return
    _logger.warning(
        '%s is of a network that sees images less the means of ImageNet, which %s.preprocess '
        'changes: leave that field out, or train all stages with these weights.',
        description,
        names.backbone_field,
    )
