"""Configs of Faster and Mask R-CNN that fit a data set."""

import dataclasses
import importlib.resources

from object_detection.config.reader import parse_pipeline
from object_detection.dataset_tools import starter_parts
from object_detection.dataset_tools.data_statistics import DataStatistics
from object_detection.dataset_tools.starter_parts import DEVICES, Starter
from object_detection.dataset_tools.starter_weights import Weights
from object_detection.protos.box_predictor_pb2 import MaskRCNNBoxPredictor
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

KIND = 'faster_rcnn'
_TEMPLATE = 'mask_rcnn_resnet18_fpn_shapes.config'
_FINEST_LEVEL, _COARSEST_LEVEL = 2, 6


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """Sizes of the model for a kind of machine.

    Attributes:
      depth: depth of the ResNet, unless pretrained weights determine it.
      channels: channels of the pyramid and of the convolutions of the heads.
      box_head_depth: width of the fully connected layers of the box head.
      num_proposals: number of regions per image that the second stage classifies.
      num_sampled: number of regions per image that train the second stage.
    """

    depth: int
    channels: int
    box_head_depth: int
    num_proposals: int
    num_sampled: int


_SIZES = {
    'cpu': _Sizes(18, 64, 256, 100, 32),
    'gpu': _Sizes(50, 256, 1024, 300, 128),
}


def template() -> TrainEvalPipelineConfig:
    """Returns the config of a sample, with masks and without readers and evaluation."""
    folder = importlib.resources.files('object_detection') / 'samples' / 'configs'
    pipeline = parse_pipeline((folder / _TEMPLATE).read_text(), _TEMPLATE)
    pipeline.ClearField('train_input_reader')
    pipeline.ClearField('eval_input_reader')
    pipeline.ClearField('eval_config')
    return pipeline


def predicts_masks(pipeline: TrainEvalPipelineConfig) -> bool:
    """Whether the detector of a config predicts masks."""
    return _predictor(pipeline).predict_instance_masks


def _predictor(pipeline: TrainEvalPipelineConfig) -> MaskRCNNBoxPredictor:
    return pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor


def remove_masks(pipeline: TrainEvalPipelineConfig) -> None:
    """Removes all fields of masks from the model of a config."""
    model = pipeline.model.faster_rcnn
    model.number_of_stages = 2
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    for field in predictor.DESCRIPTOR.fields:
        if 'mask' in field.name:
            predictor.ClearField(field.name)
    predictor.ClearField('conv_hyperparams')
    for field in model.DESCRIPTOR.fields:
        if 'mask' in field.name:
            model.ClearField(field.name)


def fit(
    starter: Starter,
    train: DataStatistics,
    device: str,
    *,
    wants_masks: bool,
    weights: Weights | None,
) -> None:
    """Fits the model of the template to a data set and a device.

    Args:
      starter: the config, made from `template`.
      train: the records.
      device: 'cpu' or 'gpu'.
      wants_masks: whether it predicts masks.
      weights: weights of a backbone, or None.
    """
    model, sizes = starter.pipeline.model.faster_rcnn, _SIZES[device]
    extractor = model.feature_extractor
    depth = weights.depth if weights else sizes.depth
    extractor.type = f'faster_rcnn_resnet{depth}_fpn_keras'
    extractor.fpn.additional_layer_depth = sizes.channels
    extractor.box_head_depth = sizes.box_head_depth
    model.first_stage_box_predictor_depth = sizes.channels
    predictor = model.second_stage_box_predictor.mask_rcnn_box_predictor
    predictor.mask_prediction_conv_depth = sizes.channels
    if weights:
        # Few images give no better statistics than ImageNet, and the first layers are generic. The
        # norms keep the epsilon of their training.
        extractor.batch_norm_trainable = False
        extractor.override_base_feature_extractor_hyperparams = False
        extractor.frozen_stages = 2
        why = f'the backbone of the weights {weights.path}; its first two stages stay frozen.'
    else:
        why = f'a ResNet that suits --for {device}; it trains from random weights.'
    starter.explain_model('feature_extractor', why)
    longer = starter_parts.fit_image_size(starter, train, DEVICES[device])
    anchors = starter_parts.fit_anchors(
        train, longer, finest_level=_FINEST_LEVEL, coarsest_level=_COARSEST_LEVEL
    )
    generator = model.first_stage_anchor_generator
    starter_parts.write_anchors(anchors, generator.multiscale_anchor_generator, extractor.fpn)
    starter.explain_model('first_stage_anchor_generator', anchors.reason)
    most = int(train.objects_per_image.max())
    model.first_stage_max_proposals = max(sizes.num_proposals, min(2 * most, 1000))
    model.second_stage_batch_size = sizes.num_sampled
    model.first_stage_minibatch_size = 4 * sizes.num_sampled
    starter_parts.fit_detections(starter, train, 'second_stage_post_processing')
    if not wants_masks:
        remove_masks(starter.pipeline)
