"""Builds the heads of the second and third stage that a BoxPredictor proto describes."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from object_detection.builders import hyperparams_builder
from object_detection.config import reading
from object_detection.config.oneof import build_oneof
from object_detection.errors import expected, within
from object_detection.models.heads.box_classifier import BoxClassifier
from object_detection.models.heads.box_head import BoxHead
from object_detection.models.heads.keypoint_head import KeypointHead
from object_detection.models.heads.mask_head import MaskHead
from object_detection.models.heads.rfcn_head import RfcnHead
from object_detection.protos import box_predictor_pb2
from object_detection.protos.hyperparams_pb2 import Hyperparams

NO_MASKS = 'masks are predicted by stage 3, and number_of_stages is 2'
_MASK_FIELDS = (
    'predict_instance_masks',
    'mask_height',
    'mask_width',
    'mask_prediction_conv_depth',
    'mask_prediction_num_conv_layers',
    'masks_are_class_agnostic',
    'convolve_then_upsample_masks',
    'mask_head_deconv',
)
NO_KEYPOINTS = 'mask_rcnn_box_predictor.predict_keypoints is false'
_OUTPUTS = 'the class and box layers always have a bias, and no activation'


def build(
    config: box_predictor_pb2.BoxPredictor,
    num_classes: int,
    is_training: bool = True,
    *,
    with_masks: bool = True,
) -> tuple[BoxHead | RfcnHead, MaskHead | None]:
    """Builds the heads of the second and third stage of Faster R-CNN or R-FCN.

    Args:
      config: message with `mask_rcnn_box_predictor` or `rfcn_box_predictor` set.
      num_classes: K, not counting the background.
      is_training: False freezes the heads' batch norms.
      with_masks: whether the detector has a stage that predicts masks.

    Returns:
      The box head, and the mask head (None unless `predict_instance_masks` and `with_masks`).

    Raises:
      ValueError: if another predictor is set, for masks without `conv_hyperparams`, and for a crop
        of R-FCN that its bins do not divide.
    """
    builders: dict[str, Callable[[Any], tuple[BoxHead | RfcnHead, MaskHead | None]]] = {
        'mask_rcnn_box_predictor': lambda option: _mask_rcnn(
            option, num_classes, is_training, with_masks
        ),
        'rfcn_box_predictor': lambda option: (_rfcn(option, num_classes, is_training), None),
    }
    return build_oneof(config, 'box_predictor_oneof', builders)


def build_keypoint_head(
    config: box_predictor_pb2.MaskRCNNBoxPredictor, is_training: bool = True
) -> KeypointHead:
    """Builds the head that `keypoint_head` describes.

    Args:
      config: message with `predict_keypoints`.
      is_training: False freezes the head's batch norms.

    Raises:
      ValueError: without `conv_hyperparams` or keypoints, and for layers without a width.
    """
    if not config.HasField('conv_hyperparams'):
        raise expected(config.DESCRIPTOR.full_name, 'conv_hyperparams with predict_keypoints')
    layers = config.keypoint_head
    _note_depths(layers)
    with within(layers.DESCRIPTOR.full_name):
        return KeypointHead(
            layers.num_keypoints,
            hyperparams=hyperparams_builder.build(config.conv_hyperparams),
            num_convs=layers.num_convs,
            conv_depth=layers.conv_depth,
            batch_norm_trainable=is_training,
        )


def build_box_classifier(
    config: box_predictor_pb2.MaskRCNNBoxPredictor, is_training: bool = True
) -> BoxClassifier:
    """Builds the layers between crops and box head that `box_head` describes.

    Args:
      config: message with `box_head` set.
      is_training: False freezes batch norms.

    Raises:
      ValueError: for convolutions without `conv_hyperparams`, and for layers without a width.
    """
    layers, has_convs = config.box_head, config.HasField('conv_hyperparams')
    _note_depths(layers)
    with within(layers.DESCRIPTOR.full_name):
        return BoxClassifier(
            conv_hyperparams=(
                hyperparams_builder.build(config.conv_hyperparams) if has_convs else None
            ),
            fc_hyperparams=hyperparams_builder.build(config.fc_hyperparams),
            num_convs=layers.num_convs,
            conv_depth=layers.conv_depth,
            num_fcs=layers.num_fcs,
            fc_depth=layers.fc_depth,
            batch_norm_trainable=is_training,
        )


def build_box_head(
    config: box_predictor_pb2.MaskRCNNBoxPredictor, num_classes: int, is_training: bool = True
) -> BoxHead:
    """Builds the head that predicts classes and boxes.

    Args:
      config: the message of the predictor.
      num_classes: K, not counting the background.
      is_training: False freezes batch norms.
    """
    hyperparams = hyperparams_builder.build(config.fc_hyperparams)
    if config.HasField('box_head'):
        # The fully connected layers of `box_head` have the norm.
        hyperparams = hyperparams.without_norm()
    else:
        harmless = [Hyperparams.RELU, Hyperparams.NONE]
        reading.unused(config.fc_hyperparams, 'activation', _OUTPUTS, harmless=harmless)
        reading.unused(config.fc_hyperparams, ('force_use_bias', 'leaky_relu_slope'), _OUTPUTS)
    return BoxHead(
        num_classes,
        hyperparams=hyperparams,
        code_size=config.box_code_size,
        share_box_across_classes=config.share_box_across_classes,
        dropout_rate=1.0 - config.dropout_keep_probability if config.use_dropout else 0.0,
        batch_norm_trainable=is_training,
        box_initializer=hyperparams_builder.build_initializer(config.box_initializer),
    )


def _mask_rcnn(
    config: box_predictor_pb2.MaskRCNNBoxPredictor,
    num_classes: int,
    is_training: bool,
    with_masks: bool,
) -> tuple[BoxHead, MaskHead | None]:
    box_head = build_box_head(config, num_classes, is_training)
    _note_unused(config, with_masks=with_masks)
    if not (config.predict_instance_masks and with_masks):
        return box_head, None
    return box_head, _mask_head(config, num_classes, is_training)


def _note_unused(config: box_predictor_pb2.MaskRCNNBoxPredictor, *, with_masks: bool) -> None:
    if not config.use_dropout:
        name = 'dropout_keep_probability'
        default = config.DESCRIPTOR.fields_by_name[name].default_value
        reading.unused(config, name, 'use_dropout is false', harmless=[default, 1.0])
    if not config.predict_keypoints:
        reading.unused(config, 'keypoint_head', NO_KEYPOINTS)
    if not with_masks:
        # The same message configures the convolutions of box_head and of keypoints.
        has_convs = config.box_head.num_convs or config.predict_keypoints
        fields = _MASK_FIELDS if has_convs else (*_MASK_FIELDS, 'conv_hyperparams')
        reading.unused(config, fields, NO_MASKS)


def _note_depths(layers: Message) -> None:
    for count, depth in (('num_convs', 'conv_depth'), ('num_fcs', 'fc_depth')):
        if getattr(layers, count, None) == 0:
            reading.unused(layers, depth, f'{count} is 0')


def _mask_head(
    config: box_predictor_pb2.MaskRCNNBoxPredictor, num_classes: int, is_training: bool
) -> MaskHead:
    if not config.HasField('conv_hyperparams'):
        raise expected(config.DESCRIPTOR.full_name, 'conv_hyperparams with predict_instance_masks')
    return MaskHead(
        num_classes,
        hyperparams=hyperparams_builder.build(config.conv_hyperparams),
        mask_size=(config.mask_height, config.mask_width),
        num_conv_layers=config.mask_prediction_num_conv_layers,
        conv_depth=config.mask_prediction_conv_depth,
        class_agnostic=config.masks_are_class_agnostic,
        convolve_then_upsample=config.convolve_then_upsample_masks,
        deconvolve=config.mask_head_deconv,
        batch_norm_trainable=is_training,
    )


def _rfcn(
    config: box_predictor_pb2.RfcnBoxPredictor, num_classes: int, is_training: bool
) -> RfcnHead:
    with within(config.DESCRIPTOR.full_name):
        return RfcnHead(
            num_classes,
            hyperparams=hyperparams_builder.build(config.conv_hyperparams),
            depth=config.depth,
            crop_size=(config.crop_height, config.crop_width),
            num_bins=(config.num_spatial_bins_height, config.num_spatial_bins_width),
            code_size=config.box_code_size,
            batch_norm_trainable=is_training,
        )
