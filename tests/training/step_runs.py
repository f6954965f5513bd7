"""Tiny detectors and batches that training steps are compared on, computed in different ways."""

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.config.reader import read_pipeline
from object_detection.core.fields import InputFields
from object_detection.optimizers import schedules
from object_detection.optimizers.gradients import Execution
from object_detection.optimizers.optimizers import Momentum
from object_detection.protos import pipeline_pb2
from object_detection.training import step
from tests import tiny_models
from tests.test_samples import SAMPLES

RECIPE = 'mask_rcnn_resnet50_fpn_832x1344_coco17.config'
_TINY_RECIPE = """
model {
  faster_rcnn {
    num_classes: 4
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
    feature_extractor {
      type: 'faster_rcnn_resnet18_fpn_keras'
      fpn { additional_layer_depth: 8 }
    }
    first_stage_anchor_generator {
      multiscale_anchor_generator { scales_per_octave: 1 }
    }
    first_stage_box_predictor_depth: 8
    first_stage_minibatch_size: 64
    first_stage_pre_nms_topk_per_level: 64
    first_stage_max_proposals_per_level: 32
    first_stage_max_proposals: 32
    second_stage_batch_size: 16
    roi_align { output_size: 3 }
    mask_roi_align { output_size: 4 }
    second_stage_box_predictor {
      mask_rcnn_box_predictor {
        box_head { fc_depth: 16 }
        mask_height: 8
        mask_width: 8
        mask_prediction_conv_depth: 8
        mask_prediction_num_conv_layers: 2
      }
    }
    max_num_mask_rois: 8
    second_stage_post_processing {
      batch_non_max_suppression { max_detections_per_class: 6 max_total_detections: 6 }
    }
    groundtruth_mask_crop_size: 14
  }
}
"""


def tiny_recipe(*overrides: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    """The Mask R-CNN recipe, made small; `overrides` are text protos merged into it."""
    pipeline = read_pipeline(str(SAMPLES / RECIPE))
    # A ResNet-18 has no bottlenecks whose stride it could move.
    pipeline.model.faster_rcnn.feature_extractor.ClearField('stride_in_1x1')
    for part in (_TINY_RECIPE, *overrides):
        text_format.Merge(part, pipeline)
    return pipeline


def batches(
    batch_size: int, *, sizes: tuple[tuple[int, int], ...] = ((64, 64),), count: int = 1
) -> list[dict[str, tf.Tensor]]:
    """`count` batches, of each size in turn, whose images have 0 to 4 objects each."""
    made = []
    for index in range(count):
        height, width = sizes[index % len(sizes)]
        rng = np.random.default_rng(index)
        truth = tiny_models.random_groundtruth(batch_size, seed=index)
        num_objects = np.resize([3, 0, 4, 1], batch_size)[:, np.newaxis]
        made.append(
            {
                InputFields.IMAGE: tf.constant(
                    rng.uniform(0, 255, (batch_size, height, width, 3)), tf.float32
                ),
                InputFields.TRUE_IMAGE_SHAPE: tf.tile(
                    tf.constant([[height, width, 3]]), [batch_size, 1]
                ),
                InputFields.SOURCE_ID: tf.constant([f'{index}/{i}' for i in range(batch_size)]),
                InputFields.GROUNDTRUTH_BOXES: truth.boxes,
                InputFields.GROUNDTRUTH_CLASSES: truth.classes,
                InputFields.GROUNDTRUTH_WEIGHTS: truth.weights
                * tf.cast(np.arange(5) < num_objects, tf.float32),
                InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.cast(truth.masks * 255, tf.uint8),
            }
        )
    return made


def element_spec(
    batch: dict[str, tf.Tensor], *, any_size: bool = False
) -> dict[str, tf.TensorSpec]:
    specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    if any_size:
        image = batch[InputFields.IMAGE]
        specs[InputFields.IMAGE] = tf.TensorSpec([len(image), None, None, 3], tf.float32)
    return specs


def make_step(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    spec: dict[str, tf.TensorSpec],
    execution: Execution | None = None,
    **options,
) -> step.TrainStep:
    """Builds the detector, with reproducible weights and small outputs, and a step of it."""
    tf.keras.utils.set_random_seed(0)
    detector = model_builder.build(pipeline.model, is_training=True)
    detector.build_variables()
    # Else losses depend on the last digits of large numbers.
    tiny_models.shrink_last_layers(detector)
    return step.TrainStep(
        detector,
        Momentum(schedules.constant(0.002), momentum=0.9),
        element_spec=spec,
        seed=3,
        clip_norm=1.0,
        execution=execution,
        **options,
    )


def run(train_step: step.TrainStep, data: list[dict[str, tf.Tensor]]) -> list[dict[str, float]]:
    """Does the steps; returns their losses."""
    return [{name: float(value) for name, value in train_step(batch).items()} for batch in data]
