"""Errors of the builders of those components of Faster R-CNN that are cheap to build."""

from collections.abc import Iterator

from object_detection.builders.faster_rcnn import rules
from object_detection.builders.faster_rcnn.rules import ROOT
from object_detection.meta_architectures.tracing import problems
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn


def check(config: FasterRcnn) -> Iterator[str]:
    """Yields one sentence per problem; loads TensorFlow."""
    from object_detection.builders import anchor_generator_builder, image_resizer_builder
    from object_detection.builders.faster_rcnn import feature_extractor_builder, rpn_builder

    yield from problems(image_resizer_builder.build, config.image_resizer, f'{ROOT}.image_resizer')
    path, extractor = f'{ROOT}.feature_extractor', config.feature_extractor
    yield from problems(feature_extractor_builder.check, extractor, path)
    path, anchors = f'{ROOT}.first_stage_anchor_generator', config.first_stage_anchor_generator
    yield from problems(anchor_generator_builder.build, anchors, path)
    yield from problems(rpn_builder.check, config, ROOT)
    if config.number_of_stages > 1:
        yield from _second_stage(config)


def _second_stage(config: FasterRcnn) -> Iterator[str]:
    from object_detection.builders import box_predictor_builder, post_processing_builder
    from object_detection.builders.faster_rcnn import second_stage_builder

    path, suppression = f'{ROOT}.second_stage_post_processing', config.second_stage_post_processing
    yield from problems(post_processing_builder.build, suppression, path)
    yield from _losses(config)
    yield from problems(second_stage_builder.check, config, ROOT)
    path, predictor = f'{ROOT}.second_stage_box_predictor', config.second_stage_box_predictor
    yield from problems(box_predictor_builder.build, predictor, path, config.num_classes)
    head = predictor.mask_rcnn_box_predictor
    if head.HasField('box_head'):
        path = f'{path}.mask_rcnn_box_predictor.box_head'
        yield from problems(box_predictor_builder.build_box_classifier, head, path)
    if rules.predicts_keypoints(config):
        path = f'{ROOT}.second_stage_box_predictor.mask_rcnn_box_predictor.keypoint_head'
        yield from problems(box_predictor_builder.build_keypoint_head, head, path)
        yield from problems(second_stage_builder.keypoints_of_classes, config, path)


def _losses(config: FasterRcnn) -> Iterator[str]:
    from object_detection.builders import losses_builder

    loss, path = config.second_stage_classification_loss, f'{ROOT}.second_stage_classification_loss'
    yield from problems(losses_builder.build_second_stage_classification, loss, path)
    if config.HasField('hard_example_miner'):
        yield from problems(
            losses_builder.build_hard_example_miner,
            config.hard_example_miner,
            f'{ROOT}.hard_example_miner',
            loss,
            config.second_stage_classification_loss_weight,
            config.second_stage_localization_loss_weight,
        )
