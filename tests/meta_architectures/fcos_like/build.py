"""Builds the detector that an `experimental_model` describes."""

import math

from object_detection.builders import image_resizer_builder, post_processing_builder
from object_detection.config import families
from object_detection.losses.classification import SigmoidFocalLoss, SigmoidLoss
from object_detection.losses.localization import GiouLocalizationLoss
from object_detection.models.backbones import table
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    check_levels,
)
from object_detection.models.heads.weight_shared import (
    WeightSharedConvolutionalBoxPredictor,
    WeightSharedOptions,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.table import NECKS, NeckOptions
from object_detection.models.normalization import GroupNormParams
from object_detection.protos.model_pb2 import ExperimentalModel
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.targets.assigners import PointAssigner
from object_detection.targets.box_coders import DistanceBoxCoder
from tests.meta_architectures.fcos_like.family import Options
from tests.meta_architectures.fcos_like.fcos_like import FcosLike, Learning

# Initial score of all classes, as of focal losses (https://arxiv.org/abs/1708.02002, sec. 4.1).
_PRIOR = 0.01
_CHANNELS_OF_A_GROUP = 4


def build(message: ExperimentalModel, is_training: bool) -> FcosLike:
    """Builds it with random weights; without `is_training`, all batch norms are frozen."""
    options = families.named_options(message, Options)
    levels = range(options.levels[0], options.levels[1] + 1)
    norm = GroupNormParams(groups=max(options.width // _CHANNELS_OF_A_GROUP, 1), epsilon=1e-5)
    hyperparams = LayerHyperparams(group_norm=norm)
    nms, score_converter = post_processing_builder.build(_post_processing(options))
    return FcosLike(
        num_classes=message.num_classes,
        resizer=image_resizer_builder.build(message.image_resizer),
        feature_extractor=_feature_extractor(options, levels, hyperparams, is_training),
        head=WeightSharedConvolutionalBoxPredictor(
            message.num_classes,
            [1] * len(levels),
            hyperparams=hyperparams,
            options=WeightSharedOptions(
                # The distances to the sides, and the logit of being at the centre.
                code_size=DistanceBoxCoder.code_size + 1,
                depth=options.width,
                num_layers=options.num_layers,
                class_bias=-math.log((1 - _PRIOR) / _PRIOR),
            ),
        ),
        learning=Learning(
            assigner=PointAssigner(_ranges(options, levels), options.radius),
            classification=SigmoidFocalLoss(gamma=2.0, alpha=0.25),
            localization=GiouLocalizationLoss(),
            center=SigmoidLoss(),
        ),
        nms=nms,
        score_converter=score_converter,
    )


def _ranges(options: Options, levels: range) -> list[tuple[float, float]]:
    # In cells, which are twice as large on the next level.
    later = len(levels) - 1
    lows, highs = [0.0] + [options.size / 2] * later, [options.size] * later + [math.inf]
    return list(zip(lows, highs, strict=True))


def _feature_extractor(
    options: Options, levels: range, hyperparams: LayerHyperparams, is_training: bool
) -> FeatureExtractor:
    row = table.find(options.backbone)
    check_levels('levels', levels[:1], row)
    taken = range(levels[0], min(levels[-1], row.levels[-1]) + 1)
    backbone = row.trunk(
        taken,
        ExtractorOptions(batch_norm_trainable=is_training).for_backbone(
            row, depth_multiplier=options.depth_multiplier
        ),
    )
    neck = NeckOptions(
        hyperparams=hyperparams,
        batch_norm_trainable=is_training,
        levels=levels,
        inputs=taken,
        depth=options.width,
        settings={'crop_upsampled': True},
    )
    return FeatureExtractor(
        backbone=backbone,
        pyramid=NECKS['fpn'].build([each.shape[-1] for each in backbone.outputs], neck),
        strides=[2**level for level in levels],
        pad_to_multiple=row.padding_multiple,
        normalize=row.normalize,
    )


def _post_processing(options: Options) -> PostProcessing:
    message = PostProcessing(score_converter=PostProcessing.SIGMOID)
    message.batch_non_max_suppression.score_threshold = options.score_threshold
    message.batch_non_max_suppression.iou_threshold = options.iou_threshold
    message.batch_non_max_suppression.max_detections_per_class = options.max_detections
    message.batch_non_max_suppression.max_total_detections = options.max_detections
    message.batch_non_max_suppression.change_coordinate_frame = True
    return message
