"""Builds the single-shot detector that an Ssd proto describes."""

from object_detection.builders import (
    anchor_generator_builder,
    box_coder_builder,
    image_resizer_builder,
    losses_builder,
    matcher_builder,
    post_processing_builder,
    region_similarity_calculator_builder,
)
from object_detection.builders.ssd import feature_extractor_builder, predictor_builder, rules
from object_detection.errors import raise_if_any
from object_detection.meta_architectures.ssd.anchor_losses import (
    AnchorLosses,
    LossOptions,
    TargetOptions,
)
from object_detection.meta_architectures.ssd.ssd import PostProcessing, Ssd
from object_detection.protos import ssd_pb2
from object_detection.targets.target_assigner import TargetAssigner


def build(config: ssd_pb2.Ssd, is_training: bool) -> Ssd:
    """Builds a single-shot detector, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    raise_if_any(rules.problems_of_parts(config))
    trains_norms = is_training and not config.freeze_batchnorm
    resizer = image_resizer_builder.build(config.image_resizer)
    image_size = resizer.static_shape and resizer.static_shape[:2]
    anchor_generator = anchor_generator_builder.build(config.anchor_generator).for_images(
        image_size
    )
    return Ssd(
        num_classes=config.num_classes,
        resizer=resizer,
        feature_extractor=feature_extractor_builder.build(config.feature_extractor, trains_norms),
        anchor_generator=anchor_generator,
        box_predictor=predictor_builder.build(
            config.box_predictor,
            num_outputs=config.num_classes + config.add_background_class,
            num_anchors=anchor_generator.num_anchors_per_location(),
            batch_norm_trainable=trains_norms,
        ),
        anchor_losses=build_losses(config),
        post_processing=_post_processing(config),
    )


def build_losses(config: ssd_pb2.Ssd) -> AnchorLosses:
    """Builds the targets of anchors and the losses.

    Raises:
      ValueError: if a component is not set, or an option is not supported.
    """
    losses = losses_builder.build(config.loss)
    return AnchorLosses(
        TargetAssigner(
            region_similarity_calculator_builder.build(config.similarity_calculator),
            matcher_builder.build(config.matcher),
            box_coder_builder.build(config.box_coder),
            negative_class_weight=config.negative_class_weight,
        ),
        TargetOptions(
            num_columns=config.num_classes + config.add_background_class,
            adds_background=config.add_background_class,
            labels_background=config.explicit_background_class,
            background_as_zeros=config.encode_background_as_zeros,
            from_confidences=config.use_confidences_as_targets,
            implicit_weight=config.implicit_example_weight,
        ),
        LossOptions(
            **vars(losses),
            divides_by_matches=config.normalize_loss_by_num_matches,
            divides_by_code_size=config.normalize_loc_loss_by_codesize,
        ),
    )


def _post_processing(config: ssd_pb2.Ssd) -> PostProcessing:
    nms, score_converter = post_processing_builder.build(config.post_processing)
    return PostProcessing(
        nms=nms,
        score_converter=score_converter,
        drops_background=config.add_background_class or config.explicit_background_class,
        changes_frame=config.post_processing.batch_non_max_suppression.change_coordinate_frame,
        returns_raw_boxes=config.return_raw_detections_during_predict,
    )
