"""Tiny detectors of every family, their batches, and one step of each, computed in several ways.

All anchors and proposals train, since rounding would choose between those of nearly the same score;
norms are frozen, since their statistics would be those of parts.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.config import families
from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import rows_from
from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.center_net import build as center_net_build
from object_detection.meta_architectures.center_net.center_net import CenterNet, PostProcessing
from object_detection.meta_architectures.center_net.deepmac import build as deepmac_build
from object_detection.meta_architectures.center_net.feature_extractor import CenterNetOptions
from object_detection.meta_architectures.center_net.heads import PredictionHeads
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.detr import build as detr_build
from object_detection.meta_architectures.faster_rcnn import build as faster_rcnn_build
from object_detection.meta_architectures.ssd import build as ssd_build
from object_detection.models import image_channels
from object_detection.models.backbones.table import BACKBONES
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.optimizers.gradients import Execution, LossGradients
from object_detection.protos import center_net_pb2
from object_detection.resizers.fixed_sizes import FixedShapeResizer
from tests import tiny_models
from tests.meta_architectures import learned_shapes
from tests.meta_architectures.center_net import test_frames
from tests.meta_architectures.detr import configs as detr_configs
from tests.meta_architectures.detr_like import family as detr_like
from tests.meta_architectures.faster_rcnn import test_keypoint_stage, test_rfcn
from tests.meta_architectures.fcos_like import family as fcos_like
from tests.meta_architectures.ssd import configs
from tests.plugin.toy_parts.backbones import PLAIN

SIDE = 32
# Objects of each image: most images have none.
COUNTS = (3, 0, 1, 0)
_ROWS = max(COUNTS)
SEEDS = np.array([[3, 1], [4, 1], [5, 9], [2, 6]], np.int32)

ONE_MAP = """
model {
  faster_rcnn {
    image_resizer { fixed_shape_resizer { height: 32 width: 32 } }
    first_stage_anchor_generator {
      grid_anchor_generator {
        height: 16 width: 16 height_stride: 16 width_stride: 16
        scales: [1.0, 2.0] aspect_ratios: 1.0
      }
    }
    first_stage_nms_iou_threshold: 1.0
    first_stage_max_proposals: 8
    first_stage_minibatch_size: 8
    first_stage_positive_balance_fraction: 1.0
    second_stage_batch_size: 12
    second_stage_balance_fraction: 1.0
    initial_crop_size: 4
    maxpool_kernel_size: 2
    maxpool_stride: 2
  }
}
"""
_TWO_STAGES = 'model { faster_rcnn { number_of_stages: 2 } }'
_CONTEXT = """
model { faster_rcnn { context_config {
  max_num_context_features: 6 context_feature_length: 5 attention_bottleneck_dimension: 8
} } }
"""
_COORDINATES = """
model { faster_rcnn {
  second_stage_localization_normalizer: NUM_FG_COORDS
  hard_example_miner { num_hard_examples: 6 iou_threshold: 1.0 }
} }
"""


def _faster_rcnn(*settings: str) -> DetectionModel:
    with mock.patch.object(faster_rcnn_build, 'build_extractor', test_rfcn.small_extractor):
        detector = tiny_models.tiny_detector(*settings, ONE_MAP, is_training=False)
    tiny_models.shrink_last_layers(detector)
    return detector


def extractor(channels: int, strides: list[int], num_stacks: int) -> FeatureExtractor:
    """One convolution for each map."""
    images = keras.Input((None, None, image_channels.current()))
    features = [
        keras.layers.Conv2D(
            channels, stride, strides=stride, activation='tanh', name=f'conv_{index}'
        )(images)
        for index, stride in enumerate(strides * num_stacks)
    ]
    return FeatureExtractor(
        backbone=keras.Model(images, features),
        strides=strides,
        num_stacks=num_stacks,
        normalize=lambda images: images / 255.0,
    )


def _ssd(changes: str = '') -> DetectionModel:
    network = extractor(4, [8, 16, 32], 1)
    with mock.patch.object(ssd_build, 'build_extractor', return_value=network):
        return ssd_build.build_detector(configs.tiny(changes).ssd, is_training=False)


def _center_net() -> DetectionModel:
    """All tasks, on two stacks."""
    with tempfile.NamedTemporaryFile('w', suffix='.pbtxt') as labels:
        labels.write(test_frames.LABELS)
        labels.flush()
        text = test_frames.TASKS.replace('LABELS', labels.name)
        tasks = center_net_build.build_tasks(text_format.Parse(text, center_net_pb2.CenterNet()))
    masks = text_format.Parse(test_frames.DEEPMAC, center_net_pb2.CenterNet.DeepMACMaskEstimation())
    masks.box_consistency_loss_weight = 1.0
    options = CenterNetOptions(batch_norm_trainable=False)
    tasks['deepmac_mask_estimation'] = deepmac_build.build_task(masks, options)
    heads = {
        name: dataclasses.replace(head, filters=(4,))
        for task in tasks.values()
        for name, head in task.heads.items()
    }
    return CenterNet(
        num_classes=2,
        resizer=FixedShapeResizer(height=SIDE, width=SIDE),
        feature_extractor=extractor(2, [4], 2),
        heads=PredictionHeads(heads, num_stacks=2),
        tasks=tasks,
        post_processing=PostProcessing(),
    )


def _experimental(family: families.ModelFamily, **options: object) -> DetectionModel:
    """What a config builds by the name of a family and a backbone from outside of the package."""
    with (
        mock.patch.dict(families.FAMILIES._rows, {'tiny': family}),
        mock.patch.dict(BACKBONES._rows, {'plain': PLAIN}),
    ):
        message = learned_shapes.model('tiny', backbone='plain', width=16, **options)
        return model_builder.build(message, is_training=False)


def _detr(kind: str) -> DetectionModel:
    # What the layers of D-FINE learn of the last one depends on the whole batch.
    changes = ['loss { auxiliary: false }'] if kind == 'd_fine' else []
    if kind in ('rt_detr', 'detr'):
        changes.append('decoder { dropout: 0.1 }')
    detector = detr_build.build_detector(detr_configs.tiny(kind, *changes), is_training=False)
    detector.build_variables()
    # Fresh queries look at the very borders of cells, where rounding chooses between two.
    rng = np.random.default_rng(0)
    for _, variable in sorted(detector.named_trainable_variables().items()):
        variable.assign_add(rng.normal(0.0, 0.02, variable.shape).astype(np.float32))
    return detector


_CASCADE = """
model { faster_rcnn {
  second_stage_box_predictor { mask_rcnn_box_predictor { box_head { num_fcs: 1 fc_depth: 16 } } }
  second_stage_add_gt_as_proposals: true
  cascade_stages { iou_threshold: 0.6 }
  cascade_stages { iou_threshold: 0.7 loss_weight: 0.5 }
} }
"""

# Name -> builds the detector.
FAMILIES: dict[str, Callable[[], DetectionModel]] = {
    'ssd': _ssd,
    'mask_rcnn': _faster_rcnn,
    'center_net': _center_net,
    'fcos_like': lambda: _experimental(fcos_like.FAMILY, num_layers=1),
    'detr_like': lambda: _experimental(detr_like.FAMILY, heads=2, queries=6),
    'ssd_of_sums': lambda: _ssd('normalize_loss_by_num_matches: false'),
    'faster_rcnn': lambda: _faster_rcnn(_TWO_STAGES, _COORDINATES),
    'keypoint_rcnn': lambda: _faster_rcnn(test_keypoint_stage.HEAD, test_keypoint_stage.NO_MASKS),
    'context_rcnn': lambda: _faster_rcnn(_TWO_STAGES, _CONTEXT),
    'cascade_rcnn': lambda: _faster_rcnn(_CASCADE),
    'static_context_cascade': lambda: _faster_rcnn(_CASCADE, _CONTEXT, tiny_models.STATIC),
    'rfcn': lambda: _faster_rcnn(test_rfcn.RFCN),
    **{kind: functools.partial(_detr, kind) for kind in detr_configs.KINDS},
}
Tensors = dict[str, tf.Tensor]
Sums = dict[str, LossSum]
WAYS = {
    'whole': Execution(),
    'parts': Execution(accumulation_steps=4),
    'compiled': Execution(jit_compile=True),
    'compiled parts': Execution(jit_compile=True, accumulation_steps=2),
    'two replicas': Execution(),
    'recomputed compiled parts': Execution(jit_compile=True, accumulation_steps=2, recomputes=True),
    'two recomputed replicas': Execution(recomputes=True),
    'two replicas of parts': Execution(accumulation_steps=2),
    'two compiled replicas': Execution(jit_compile=True),
}


def batch_of(detector: DetectionModel) -> Tensors:
    """Returns images, and their ground truth and side inputs, by the names of a data set."""
    rng = np.random.default_rng(5)
    shape = (len(COUNTS), _ROWS)
    low = rng.uniform(0.0, 0.5, [*shape, 2])
    num_keypoints = 2 if isinstance(detector, CenterNet) else test_keypoint_stage.COUNT
    classes = rng.integers(0, detector.num_classes, shape)
    numbers = {
        F.IMAGE: rng.uniform(0.0, 255.0, [len(COUNTS), SIDE, SIDE, 3]),
        F.GROUNDTRUTH_BOXES: np.concatenate([low, low + rng.uniform(0.3, 0.5, low.shape)], axis=-1),
        F.GROUNDTRUTH_CLASSES: np.eye(detector.num_classes)[classes],
        F.GROUNDTRUTH_WEIGHTS: np.arange(_ROWS) < np.array(COUNTS)[:, np.newaxis],
        F.GROUNDTRUTH_INSTANCE_MASKS: rng.integers(0, 2, [*shape, SIDE, SIDE]),
        F.GROUNDTRUTH_KEYPOINTS: low[..., np.newaxis, :]
        + rng.uniform(0.0, 0.3, [*shape, num_keypoints, 2]),
        F.GROUNDTRUTH_TEMPORAL_OFFSETS: low,
        F.GROUNDTRUTH_TRACK_MATCH_FLAGS: np.ones(shape),
        F.GROUNDTRUTH_DP_POINTS: rng.uniform(0.1, 0.9, [*shape, 2, 2]),
        F.GROUNDTRUTH_DP_SURFACE: rng.uniform(0.1, 0.9, [*shape, 2, 2]),
    }
    integers = {
        F.TRUE_IMAGE_SHAPE: [[SIDE, SIDE, 3]] * len(COUNTS),
        F.GROUNDTRUTH_TRACK_IDS: rng.integers(0, 4, shape),
        F.GROUNDTRUTH_DP_NUM_POINTS: [[2, 0, 1]] * len(COUNTS),
        F.GROUNDTRUTH_DP_PART_IDS: rng.integers(0, 3, [*shape, 2]),
    }
    for name, spec in detector.side_inputs().items():
        if spec.dtype.is_floating:
            numbers[name] = rng.uniform(-1.0, 1.0, [len(COUNTS), *spec.shape[1:]])
        else:
            integers[name] = [4, 1, 0, 6]
    batch = {name: tf.constant(value, tf.float32) for name, value in numbers.items()}
    return batch | {name: tf.constant(value, tf.int32) for name, value in integers.items()}


def predict(detector: DetectionModel, batch: Tensors, seeds: tf.Tensor) -> tuple[Any, Groundtruth]:
    """Returns the predictions of a training, and the ground truth."""
    groundtruth = Groundtruth.from_batch(batch)
    predictions = detector.predict(
        detector.normalize(batch[F.IMAGE]),
        batch[F.TRUE_IMAGE_SHAPE],
        True,
        groundtruth,
        seeds,
        **side_inputs.select(detector, batch),
    )
    return predictions, groundtruth


def loss_sums(detector: DetectionModel, batch: Tensors, seeds: tf.Tensor) -> Sums:
    """Returns the losses of images in a training."""
    return detector.loss_sums(*predict(detector, batch, seeds), seeds)


def build(family: str) -> DetectionModel:
    """Builds the detector of a family with reproducible weights."""
    tf.keras.utils.set_random_seed(0)
    detector = FAMILIES[family]()
    detector.build_variables()
    return detector


def losses_and_gradients(family: str, way: str) -> dict[str, np.ndarray]:
    """Computes a step in one of `WAYS`; losses and gradients by name.

    Some ways need two logical CPUs.
    """

    def differentiate(detector: DetectionModel, batch: Tensors, seeds: tf.Tensor) -> Tensors:
        losses, gradients = LossGradients(
            lambda part, seeds: loss_sums(detector, part, seeds),
            detector.named_trainable_variables(),
            WAYS[way],
        )(batch, seeds)
        return losses | gradients

    return _add_replicas(family, 2 if 'two' in way else 1, differentiate)


def means_of_losses(family: str) -> dict[str, np.ndarray]:
    """Returns the means over two replicas of the losses that `DetectionModel.loss` returns."""

    def halves(detector: DetectionModel, batch: Tensors, seeds: tf.Tensor) -> Tensors:
        predictions, groundtruth = predict(detector, batch, seeds)
        losses = detector.loss(predictions, groundtruth, seeds)
        return {name: loss / 2 for name, loss in losses.items()}

    return _add_replicas(family, 2, halves)


@functools.cache
def _two_replicas() -> tf.distribute.Strategy:
    # Another one would number its collective operations from the same number on.
    return tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])


def _add_replicas(family: str, number: int, function: Callable) -> dict[str, np.ndarray]:
    """Returns the sums over replicas of `function(detector, batch, seeds)`, tensors by name."""
    strategy = _two_replicas() if number == 2 else tf.distribute.get_strategy()
    with strategy.scope():
        detector = build(family)
    batch = batch_of(detector) | {'seeds': SEEDS}
    count = len(COUNTS) // number

    def of_replica() -> Tensors:
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        start = tf.cast(index, tf.int32) * count
        part = {name: rows_from(each, start, count) for name, each in batch.items()}
        seeds = part.pop('seeds')
        return function(detector, part, seeds)

    results = tf.function(lambda: strategy.run(of_replica), autograph=False)()
    add = tf.distribute.ReduceOp.SUM
    return {name: strategy.reduce(add, each, None).numpy() for name, each in results.items()}


def compute(family: str) -> dict[str, dict[str, np.ndarray]]:
    """Returns `losses_and_gradients` by way; to be called in a process of its own."""
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    found = {way: losses_and_gradients(family, way) for way in WAYS}
    return found | {'means': means_of_losses(family)}
