"""Builds the Faster R-CNN, Mask R-CNN or R-FCN that a FasterRcnn proto describes."""

from typing import Any

from object_detection.builders import (
    box_predictor_builder,
    image_resizer_builder,
)
from object_detection.builders.faster_rcnn import (
    feature_extractor_builder,
    rpn_builder,
    rules,
    second_stage_builder,
)
from object_detection.errors import raise_if_any
from object_detection.meta_architectures.faster_rcnn.croppers import RoiCropper
from object_detection.meta_architectures.faster_rcnn.extra_outputs import ExtraOutputs
from object_detection.meta_architectures.faster_rcnn.faster_rcnn import FasterRcnn
from object_detection.meta_architectures.faster_rcnn.rfcn import Rfcn
from object_detection.models.heads.rfcn_head import RfcnHead
from object_detection.protos import faster_rcnn_pb2


def build(config: faster_rcnn_pb2.FasterRcnn, is_training: bool) -> FasterRcnn:
    """Builds a detector of the Faster R-CNN family, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    raise_if_any(rules.stage_problems(config))
    static = config.use_static_shapes and (is_training or config.use_static_shapes_for_eval)
    extractor = feature_extractor_builder.build(config.feature_extractor, is_training)
    outputs = ExtraOutputs(
        box_features=config.output_final_box_features,
        cropped_features=config.output_final_box_rpn_features,
        raw_detections=config.return_raw_detections_during_predict,
    )
    detector: type[FasterRcnn] = FasterRcnn
    parts: dict[str, Any] = {}
    if config.number_of_stages > 1:
        box_head, mask_head = box_predictor_builder.build(
            config.second_stage_box_predictor,
            config.num_classes,
            is_training,
            with_masks=config.number_of_stages == 3,
        )
        box_stage = second_stage_builder.build(config, box_head, static)
        parts = {'box_stage': box_stage, 'outputs': outputs}
        if config.number_of_stages == 3:
            parts['mask_stage'] = second_stage_builder.build_masks(config, mask_head, extractor)
        if isinstance(box_head, RfcnHead):
            detector = Rfcn
        else:
            parts |= _crop_parts(config, extractor.strides)
            parts['context_stage'] = second_stage_builder.build_context(config, is_training)
            if rules.predicts_keypoints(config):
                parts['keypoint_stage'] = second_stage_builder.build_keypoints(
                    config, extractor, is_training
                )
            extractor = second_stage_builder.with_box_head(config, extractor, is_training)
    return detector(
        num_classes=config.num_classes,
        resizer=image_resizer_builder.build(config.image_resizer),
        feature_extractor=extractor,
        rpn=rpn_builder.build(config, extractor.num_levels, is_training, static),
        **parts,
    )


def _crop_parts(config: faster_rcnn_pb2.FasterRcnn, strides: list[int]) -> dict[str, Any]:
    """What the second stage crops proposals with; R-FCN's head crops score maps instead."""
    if config.HasField('roi_align'):
        return {'cropper': second_stage_builder.build_cropper(config, 'roi_align', strides)}
    return {
        'cropper': RoiCropper(
            crop_size=config.initial_crop_size, use_matmul=config.use_matmul_crop_and_resize
        ),
        'maxpool_size': config.maxpool_kernel_size,
        'maxpool_stride': config.maxpool_stride,
    }
