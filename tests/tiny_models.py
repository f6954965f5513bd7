"""Small detectors and batches for tests."""

import contextlib
import importlib.resources
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection import register
from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.backbones.table import BACKBONES
from object_detection.protos import pipeline_pb2
from tests.plugin.toy_parts.backbones import PLAIN

IMAGE_SIZE = 64
NUM_CLASSES = 4
MASK_CROP = 14
# Of a batch of two.
# No tensor: collective operations are to be configured before the first one is made.
SEEDS = np.array([[3, 1], [4, 1]], np.int32)

_TINY = """
model {
  faster_rcnn {
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
    feature_extractor {
      fpn { min_level: 2 max_level: 4 additional_layer_depth: 8 }
      box_head_depth: 16
    }
    first_stage_box_predictor_depth: 8
    first_stage_max_proposals: 16
    first_stage_minibatch_size: 32
    second_stage_batch_size: 8
    second_stage_balance_fraction: 0.5
    second_stage_box_predictor {
      mask_rcnn_box_predictor { mask_prediction_conv_depth: 8 mask_height: 14 mask_width: 14 }
    }
    second_stage_post_processing {
      batch_non_max_suppression {
        score_threshold: 0.0 max_detections_per_class: 6 max_total_detections: 6
      }
    }
    groundtruth_mask_crop_size: 14
  }
}
"""
# With `plain_backbone`: five convolutions instead of a ResNet-18, for tests of what is around it.
PLAIN_BACKBONE = """
model { faster_rcnn { feature_extractor { type: 'faster_rcnn_fpn' backbone: 'plain' } } }
"""
STATIC = """
model {
  faster_rcnn {
    use_static_shapes: true
    use_static_shapes_for_eval: true
    use_static_balanced_label_sampler: true
    use_matmul_crop_and_resize: true
    use_matmul_gather_in_matcher: true
  }
}
"""


@contextlib.contextmanager
def plain_backbone() -> Iterator[None]:
    """Lets configs name the backbone 'plain'."""
    register.backbone('plain', PLAIN)
    try:
        yield
    finally:
        del BACKBONES._rows['plain']


def tiny_pipeline(*overrides: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    """The demo's config, made small; `overrides` are text protos merged into it."""
    samples = importlib.resources.files('object_detection') / 'samples' / 'configs'
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    text = (samples / 'mask_rcnn_resnet18_fpn_shapes.config').read_text()
    for part in (text, _TINY, *overrides):
        text_format.Merge(part, pipeline)
    return pipeline


def tiny_detector(*overrides: str, is_training: bool = True, seed: int = 0) -> DetectionModel:
    """Builds it with reproducible weights."""
    tf.keras.utils.set_random_seed(seed)
    detector = model_builder.build(tiny_pipeline(*overrides).model, is_training=is_training)
    detector.build_variables()
    return detector


def disturb_batch_norms(detector: DetectionModel) -> None:
    """Gives the batch norms numbers as after a training; new ones are the identity."""
    rng = np.random.default_rng(0)
    for name, variable in detector.named_variables().items():
        if '_bn/' in name:
            variable.assign(rng.uniform(0.5, 1.5, variable.shape))


def random_images(batch: int, seed: int = 0) -> tf.Tensor:
    rng = np.random.default_rng(seed)
    return tf.constant(rng.uniform(0, 255, (batch, IMAGE_SIZE, IMAGE_SIZE, 3)), tf.float32)


def random_groundtruth(batch: int, rows: int = 5, seed: int = 0) -> Groundtruth:
    """Crops as masks; the last row of each image is padding."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 0.5, (batch, rows, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.2, 0.5, (batch, rows, 2))], axis=-1)
    weights = np.ones((batch, rows), np.float32)
    boxes[:, -1:], weights[:, -1:] = 0, 0
    classes = np.eye(NUM_CLASSES, dtype=np.float32)[rng.integers(0, NUM_CLASSES, (batch, rows))]
    return Groundtruth(
        boxes=tf.constant(boxes, tf.float32),
        classes=tf.constant(classes),
        weights=tf.constant(weights),
        masks=tf.constant(rng.uniform(size=(batch, rows, MASK_CROP, MASK_CROP)), tf.float32),
        masks_are_crops=True,
    )


def shapes(images: tf.Tensor) -> tf.Tensor:
    """The true shapes int32 [B, 3] of images without padding."""
    return tf.tile(tf.shape(images)[tf.newaxis, 1:], [tf.shape(images)[0], 1])


def train_losses(
    detector: DetectionModel,
    images: tf.Tensor,
    groundtruth: Groundtruth,
    seeds: np.ndarray = SEEDS,
) -> dict[str, tf.Tensor]:
    """The losses of images, of which all is true image, in a training."""
    predictions = detector.predict(
        detector.normalize(images), shapes(images), True, groundtruth, seeds
    )
    return detector.loss(predictions, groundtruth, seeds)


def shrink_last_layers(detector: DetectionModel) -> None:
    """Makes the outputs of the heads small, as they are at the start of a training.

    Random last layers make boxes of thousands of pixels and logits of hundreds.
    """
    for name, variable in detector.named_variables().items():
        if any(layer in name for layer in ('/box_codes', '/classes/', '/masks/')):
            variable.assign(variable * 0.02)
