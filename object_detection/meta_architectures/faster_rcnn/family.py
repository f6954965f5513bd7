"""The row of the Faster R-CNN family; loads no TensorFlow before a detector is built."""

from collections.abc import Iterator, Sequence

from object_detection import registry
from object_detection.config.families import AnchorOptions, ModelFamily, Needs
from object_detection.config.model_rules import flags_of_federated, matched_threshold
from object_detection.core.detector import Detector
from object_detection.meta_architectures.faster_rcnn import loss_names, rules, warnings
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn


def _build(config: FasterRcnn, is_training: bool) -> Detector:
    build = registry.load('object_detection.meta_architectures.faster_rcnn.build:build_detector')
    return build(config, is_training)


def _loss_names(config: FasterRcnn) -> Sequence[str]:
    return loss_names.of_parts(
        box_stages=1 + len(config.cascade_stages) if config.number_of_stages > 1 else 0,
        masks=config.number_of_stages == 3,
        keypoints=rules.predicts_keypoints(config),
    )


def _needs(config: FasterRcnn) -> Needs:
    has_masks, context = config.number_of_stages == 3, config.context_config
    flags, options = {}, {'mask_crop_size': config.groundtruth_mask_crop_size}
    if rules.has_memory(config):
        flags['load_context_features'] = rules.FIELD
        size = context.max_num_context_features, context.context_feature_length
        options['context_size'] = size
    federated = config.second_stage_classification_loss.federated_loss
    return Needs(
        masks=has_masks,
        predicts_masks=has_masks,
        mask_setting='number_of_stages: 3',
        keypoints=rules.predicts_keypoints(config),
        reader_flags=flags_of_federated(federated, 'second_stage_classification_loss'),
        input_flags=flags,
        example_options=options,
        padding_multiple=rules.padding_multiple(config),
    )


def _warnings(config: FasterRcnn, is_random: bool) -> Iterator[str]:
    if is_random:
        yield from warnings.find_untrained(config)
    yield from warnings.find_advice(config)


def _anchors(config: FasterRcnn) -> AnchorOptions:
    """Returns the anchors of the first stage."""
    if config.HasField('first_stage_outside_anchors'):
        outside = config.OutsideAnchors.Name(config.first_stage_outside_anchors)
    else:
        outside = 'CLIP' if config.clip_anchors_to_image else 'PRUNE'
    return AnchorOptions(
        'first_stage_anchor_generator',
        config.first_stage_anchor_generator,
        config.image_resizer,
        matched_threshold(config.first_stage_matcher, 0.7),
        is_inside_only=outside in ('PRUNE', 'IGNORE_LABEL'),
    )


FAMILY = ModelFamily(
    title='Faster R-CNN',
    build=_build,
    loss_names=_loss_names,
    needs=_needs,
    rules=rules.check,
    unread=warnings.find,
    warnings=_warnings,
    tpu=warnings.find_for_tpu,
    anchors=_anchors,
    nvidia_names=loss_names.NVIDIA_NAMES,
)
