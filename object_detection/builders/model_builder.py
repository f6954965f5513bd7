"""Builds the detector that a DetectionModel proto describes."""

from collections.abc import Callable
from typing import Any

from object_detection.builders import (
    box_predictor_builder,
    feature_extractor_builder,
    image_resizer_builder,
)
from object_detection.builders.faster_rcnn import (
    roi_align_builder,
    rpn_builder,
    second_stage_builder,
)
from object_detection.builders.oneof import build_oneof
from object_detection.errors import UserError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.faster_rcnn.box_stage import RoiCropper
from object_detection.meta_architectures.faster_rcnn.extra_outputs import ExtraOutputs
from object_detection.meta_architectures.faster_rcnn.faster_rcnn import FasterRcnn
from object_detection.meta_architectures.faster_rcnn.rfcn import Rfcn
from object_detection.predictors.rfcn_head import RfcnHead
from object_detection.protos import faster_rcnn_pb2, model_pb2
from object_detection.weights import inference_weights


def build(model_config: model_pb2.DetectionModel, is_training: bool = True) -> DetectionModel:
    """Builds a detector, with random weights.

    `tf.train.Checkpoint(model=detector).restore(prefix)` gives it those of a checkpoint, and
    `object_detection.load` does all at once.

    Args:
      model_config: `pipeline.model`.
      is_training: False freezes all batch norms, for evaluation and export.

    Raises:
      ValueError: if no model is set, or an option is not supported or does not fit another.
    """
    builders: dict[str, Callable[[Any], DetectionModel]] = {
        'faster_rcnn': lambda config: _faster_rcnn(config, is_training),
    }
    detector = build_oneof(model_config, 'model', builders)
    detector.checkpoint_view.restore = inference_weights.restore_by_path
    return detector


def _faster_rcnn(config: faster_rcnn_pb2.FasterRcnn, is_training: bool) -> FasterRcnn:
    if config.number_of_stages not in (1, 2, 3):
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.number_of_stages must be 1, 2 or 3. '
            f'Received: {config.number_of_stages}.'
        )
    static = config.use_static_shapes and (is_training or config.use_static_shapes_for_eval)
    extractor = feature_extractor_builder.build(config.feature_extractor, is_training)
    outputs = ExtraOutputs(
        box_features=config.output_final_box_features,
        cropped_features=config.output_final_box_rpn_features,
        raw_detections=config.return_raw_detections_during_predict,
    )
    detector: type[FasterRcnn] = FasterRcnn
    parts: dict[str, Any] = {}
    if config.number_of_stages == 1 and outputs != ExtraOutputs():
        raise UserError(
            f'{config.DESCRIPTOR.full_name}: number_of_stages: 1 has no box classifier, which '
            'output_final_box_features, output_final_box_rpn_features and '
            'return_raw_detections_during_predict are about; set them false.'
        )
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
            second_stage_builder.use_box_head(config, extractor, is_training)
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
        return {'cropper': roi_align_builder.build(config, 'roi_align', strides)}
    return {
        'cropper': RoiCropper(
            crop_size=config.initial_crop_size, use_matmul=config.use_matmul_crop_and_resize
        ),
        'maxpool_size': config.maxpool_kernel_size,
        'maxpool_stride': config.maxpool_stride,
    }
