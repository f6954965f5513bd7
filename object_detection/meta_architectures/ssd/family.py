"""The row of the SSD family; loads no TensorFlow before a detector is built."""

from collections.abc import Callable, Iterator

from object_detection import registry
from object_detection.config.families import AnchorDetection, AnchorOptions, ModelFamily, Needs
from object_detection.config.model_rules import flags_of_federated, matched_threshold
from object_detection.core.detector import Detector
from object_detection.meta_architectures.ssd import loss_names, rules, warnings
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS
from object_detection.protos.ssd_pb2 import Ssd


def _build(config: Ssd, is_training: bool) -> Detector:
    build = registry.load('object_detection.meta_architectures.ssd.build:build_detector')
    return build(config, is_training)


def _loss_names(config: Ssd) -> tuple[str, ...]:
    further = (loss_names.CENTERNESS,) if config.HasField('centerness') else ()
    return loss_names.NAMES + further


def _needs(config: Ssd) -> Needs:
    # Boxes may be coded together with keypoints.
    coder = config.box_coder.WhichOneof('box_coder_oneof')
    federated = config.loss.classification_loss.federated_loss
    return Needs(
        keypoints=coder == 'keypoint_box_coder',
        reader_flags=flags_of_federated(federated, 'loss.classification_loss'),
        padding_multiple=rules.padding_multiple(config),
    )


def _warnings(config: Ssd, is_random: bool) -> Iterator[str]:
    if is_random:
        yield from warnings.find_untrained(config)
    yield from warnings.find_advice(config)


def _anchors(config: Ssd) -> AnchorOptions:
    num_classes = config.num_classes - config.explicit_background_class

    def map_sizes() -> Callable[[int, int], list[tuple[int, int]]]:
        find = registry.load('object_detection.meta_architectures.ssd.build:map_sizes')
        return find(config)

    return AnchorOptions(
        'anchor_generator',
        config.anchor_generator,
        config.image_resizer,
        matched_threshold(config.matcher, 0.5),
        sees_static_size=True,
        detection=AnchorDetection(num_classes, config.box_coder, config.post_processing),
        map_sizes=map_sizes if config.feature_extractor.type in EXTRACTORS else None,
    )


FAMILY = ModelFamily(
    title='SSD',
    build=_build,
    loss_names=_loss_names,
    needs=_needs,
    rules=rules.check,
    warnings=_warnings,
    tpu=warnings.find_for_tpu,
    anchors=_anchors,
)
