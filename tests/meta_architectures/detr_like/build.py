"""Builds the detector that an `experimental_model` describes."""

from object_detection.builders import image_resizer_builder
from object_detection.config import families
from object_detection.losses.classification import SigmoidFocalLoss
from object_detection.losses.localization import GiouLocalizationLoss, L1LocalizationLoss
from object_detection.models.backbones import table
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    check_levels,
)
from object_detection.protos.model_pb2 import ExperimentalModel
from object_detection.targets.assigners import HungarianAssigner
from tests.meta_architectures.detr_like.detr_like import DetrLike, Learning
from tests.meta_architectures.detr_like.family import Options
from tests.meta_architectures.detr_like.transformer import Transformer


def build(message: ExperimentalModel, is_training: bool) -> DetrLike:
    """Builds it with random weights; without `is_training`, all batch norms are frozen."""
    options = families.named_options(message, Options)
    return DetrLike(
        num_classes=message.num_classes,
        resizer=image_resizer_builder.build(message.image_resizer),
        feature_extractor=_feature_extractor(options, is_training),
        transformer=Transformer(
            num_classes=message.num_classes,
            width=options.width,
            heads=options.heads,
            encoder_layers=options.encoder_layers,
            decoder_layers=options.decoder_layers,
            queries=options.queries,
        ),
        learning=Learning(
            assigner=HungarianAssigner(class_cost=2.0, l1_cost=5.0, giou_cost=2.0),
            classification=SigmoidFocalLoss(gamma=2.0, alpha=0.25),
            l1=L1LocalizationLoss(),
            giou=GiouLocalizationLoss(),
        ),
    )


def _feature_extractor(options: Options, is_training: bool) -> FeatureExtractor:
    row = table.find(options.backbone)
    check_levels('level', [options.level], row)
    backbone = row.trunk(
        [options.level],
        ExtractorOptions(batch_norm_trainable=is_training).for_backbone(
            row, depth_multiplier=options.depth_multiplier
        ),
    )
    return FeatureExtractor(
        backbone=backbone,
        strides=[2**options.level],
        pad_to_multiple=row.padding_multiple,
        normalize=row.normalize,
    )
