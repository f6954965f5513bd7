"""Trains a tiny Mask R-CNN on replicas, in processes of their own.

`compare_replicas` trains on one replica and on two logical devices with the same global batches,
and writes the losses of each step and the weights after the last of each of them; it also writes
those of trainings that differ from the first in last digits alone, and of wrong ones. `work` is for
one of the processes that TF_CONFIG names: it goes on from the newest checkpoint of a folder, and
writes its weights and what it was told.

Importing this module imports all that a training needs and runs no operation, so that a fork
server which has done it starts each process in a fraction of the time.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from unittest import mock

import numpy as np
import tensorflow as tf

from object_detection.builders import hyperparams_builder
from object_detection.builders.model_builder import build as build_model  # patched below
from object_detection.config.job_options import TrainOptions
from object_detection.core import bilinear
from object_detection.core.fields import InputFields
from object_detection.data.pipeline import record_order
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.backbones import resnet_v1
from object_detection.optimizers.gradients import GradientReduction
from object_detection.optimizers.optimizers import Momentum
from object_detection.protos.hyperparams_pb2 import Hyperparams
from object_detection.training import loop, step
from object_detection.training.distribution import collectives, strategies, strategy_choice
from object_detection.training.distribution.collectives import StatisticsAverage
from object_detection.training.monitoring.run_types import Intervals
from tests import quick_graphs, tiny_models, tolerances
from tests.training import fakes

NUM_STEPS = 4
BATCH = 4
# Trainings that differ in last digits alone, and variables whose gradients are not added up once.
NUM_REPEATED = 4
FORGOTTEN = ('backbone/conv1_bn/beta', 'rpn/conv/kernel', 'mask_head/masks/bias')
Arrays = dict[str, np.ndarray]
_SEED = 3
_RATE, _MOMENTUM, _CLIP_NORM = 0.02, 0.9, 1.0
_SIZE = 32
# Every anchor is proposed and trained on. Otherwise rounding would choose between proposals of
# nearly the same score, and replicas that differ in their last digits would soon differ in more.
# RoIAlign, since samples of other crops at the border of the map are inside or outside by rounding.
_NO_CHOICES = """
model {
  faster_rcnn {
    feature_extractor { fpn { max_level: 3 } }
    first_stage_anchor_generator {
      multiscale_anchor_generator { min_level: 2 max_level: 3 scales_per_octave: 1 }
    }
    first_stage_nms_iou_threshold: 1.0
    first_stage_minibatch_size: 80
    first_stage_positive_balance_fraction: 1.0
    first_stage_max_proposals: 80
    second_stage_batch_size: 96
    roi_align { output_size: 7 }
    mask_roi_align { output_size: 7 }
    second_stage_balance_fraction: 1.0
    second_stage_box_predictor {
      mask_rcnn_box_predictor { mask_prediction_num_conv_layers: 2 }
    }
  }
}
"""


def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """One pipeline's part of fixed global batches, whose images hold 0 to 4 objects."""
    count = NUM_STEPS * BATCH
    truth = tiny_models.random_groundtruth(count)
    # Else all replicas would have alike many objects, and each could divide by its own number.
    weights = truth.weights * (np.arange(5) < [[0], [1], [4], [3]] * NUM_STEPS)
    arrays = {
        InputFields.IMAGE: tiny_models.random_images(count)[:, :_SIZE, :_SIZE],
        InputFields.TRUE_IMAGE_SHAPE: np.tile(np.int32([[_SIZE, _SIZE, 3]]), [count, 1]),
        InputFields.SOURCE_ID: np.array([str(index) for index in range(count)]),
        InputFields.GROUNDTRUTH_BOXES: truth.boxes,
        InputFields.GROUNDTRUTH_CLASSES: truth.classes,
        InputFields.GROUNDTRUTH_WEIGHTS: tf.cast(weights, tf.float32),
        InputFields.NUM_GROUNDTRUTH_BOXES: np.sum(weights > 0, axis=1, dtype=np.int32),
        InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS: tf.cast(truth.masks * 255, tf.uint8),
    }
    pipelines, mine = context.num_input_pipelines, context.input_pipeline_id
    size = context.get_per_replica_batch_size(BATCH)
    examples = tf.data.Dataset.from_tensor_slices(arrays)
    parts = examples.batch(BATCH // pipelines, drop_remainder=True).shard(pipelines, mine)
    return parts.unbatch().batch(size, drop_remainder=True).repeat()


def build_detector() -> DetectionModel:
    """Builds it with synchronised batch norms, a smooth activation, and a block in each stage.

    Where an input of a ReLU is nearly zero, its last digit switches a gradient on or off, which
    four steps make 5e-4 of the offset of a norm. Second blocks would only be traced longer.
    """
    pipeline = tiny_models.tiny_pipeline(_NO_CHOICES)
    anchors = pipeline.model.faster_rcnn.first_stage_anchor_generator.multiscale_anchor_generator
    anchors.aspect_ratios[:] = [1.0]
    norms = pipeline.model.faster_rcnn.feature_extractor.conv_hyperparams
    norm = type(norms.batch_norm)()
    norm.CopyFrom(norms.batch_norm)
    norms.sync_batch_norm.CopyFrom(norm)
    smooth = {Hyperparams.RELU: 'softplus', Hyperparams.RELU_6: 'softplus'}
    shallow = {18: dataclasses.replace(resnet_v1._VARIANTS[18], blocks=(1, 1, 1, 1))}
    with (
        mock.patch.dict(hyperparams_builder.ACTIVATIONS, smooth),
        mock.patch.dict(resnet_v1._VARIANTS, shallow),
    ):
        return build_model(pipeline.model, is_training=True)


class ForgetfulReduction(GradientReduction):
    """Adds up gradients over the replicas, except for the one whose index `forgotten` is."""

    def __init__(self):
        super().__init__()
        self.forgotten = tf.Variable(-1, trainable=False)

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        count = tf.distribute.get_replica_context().num_replicas_in_sync
        sums = super().__call__(gradients)
        return [
            tf.where(self.forgotten == index, count * own, total)
            for index, (own, total) in enumerate(zip(gradients, sums, strict=True))
        ]


class Training:
    """Trainings on the same batches, from the same weights, in one graph."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        with strategy.scope():
            tf.keras.utils.set_random_seed(_SEED)
            iterator = iter(strategy.distribute_datasets_from_function(batches))
            self.batches = [next(iterator) for _ in range(NUM_STEPS)]
            self._detector = build_detector()
            self._detector.build_variables()
            self._rate = tf.Variable(_RATE, trainable=False)
            self._reduction = ForgetfulReduction()
            self._step = step.TrainStep(
                self._detector,
                Momentum(lambda _: self._rate.read_value(), momentum=_MOMENTUM),
                element_spec=iterator.element_spec,
                seed=_SEED,
                clip_norm=_CLIP_NORM,
                reduction=self._reduction,
            )
        self._initial = weights(self._detector)

    @property
    def trained(self) -> list[str]:
        """Names of the variables, in the order of their gradients."""
        return list(self._step.optimizer.variables)

    def run(self, *, rate: float = _RATE, forgotten: str = '', noise: int | None = None) -> Arrays:
        """Trains.

        Args:
          rate: of learning.
          forgotten: the variable whose gradient is not added up over the replicas.
          noise: seed of another order of the images in each batch, and of what their pixels and the
            initial weights are off by in their last digits; only for one replica.

        Returns:
          'losses/<name>' [steps] and the variables by name.
        """
        initial, given = self._initial, self.batches
        if noise is not None:
            rng = np.random.default_rng(noise)
            initial = {
                name: tolerances.off_by_last_digits(value, rng) for name, value in initial.items()
            }
            given = [disturbed(batch, rng) for batch in given]
        index = self.trained.index(forgotten) if forgotten else -1
        with self._strategy.scope():
            self._rate.assign(rate)
            self._reduction.forgotten.assign(index)
            self._step.step.assign(0)
            for slots in self._step.optimizer.state().values():
                for slot in slots.values():
                    slot.assign(tf.zeros_like(slot))
            for name, variable in self._detector.named_variables().items():
                variable.assign(initial[name])
        records = [self._step(batch) for batch in given]
        losses = {
            f'losses/{name}': np.array([record[name].numpy() for record in records])
            for name in records[0]
            if name != step.GRADIENT_NORM
        }
        return losses | weights(self._detector)


def disturbed(batch: Mapping[str, tf.Tensor], rng: np.random.Generator) -> dict[str, tf.Tensor]:
    """The batch in another order, its pixels off by last digits."""
    order = rng.permutation(BATCH)
    changed = {name: tf.gather(value, order) for name, value in batch.items()}
    image = changed[InputFields.IMAGE].numpy()
    return changed | {InputFields.IMAGE: tf.constant(tolerances.off_by_last_digits(image, rng))}


def weights(detector: DetectionModel) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in detector.named_variables().items()}


def compare_replicas(output: str) -> None:
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])
    one_training, two_training = Training(tf.distribute.get_strategy()), Training(two)
    runs = {'one': one_training.run(), 'two': two_training.run()}
    runs |= {f'noise{seed}': one_training.run(noise=seed) for seed in range(NUM_REPEATED)}
    runs['rate'] = one_training.run(rate=1.01 * _RATE)
    runs |= {f'forgotten{i}': two_training.run(forgotten=name) for i, name in enumerate(FORGOTTEN)}
    for name, arrays in runs.items():
        np.savez(os.path.join(output, name), **arrays)
    np.savez(os.path.join(output, 'statistics'), **average_statistics(two))


def average_statistics(strategy: tf.distribute.Strategy) -> dict[str, np.ndarray]:
    """Returns each replica's value of each variable, after an average of the statistics."""
    names = ('differing/moving_mean', 'equal/moving_variance', 'differing/kernel')
    with strategy.scope():
        named = {name: tf.Variable(0.1, trainable=False) for name in names}

    @tf.function
    def disturb():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for name in names:
            if name.startswith('differing'):
                named[name].assign(tf.cast(replica, tf.float32) + 1.0)

    strategy.run(disturb)
    StatisticsAverage(strategy, named).update()
    return {
        name: np.array([value.numpy() for value in strategy.experimental_local_results(variable)])
        for name, variable in named.items()
    }


def work(output: str, model_dir: str, num_steps: int) -> None:
    """Trains by `loop.train`, tells the other worker some things, and ends or is left alone."""
    strategy = strategies.build(strategy_choice.choose(TrainOptions(num_workers=2)))
    config = fakes.pipeline_config(batch_size=BATCH, gradient_clipping_by_norm=_CLIP_NORM)
    momentum = config.train_config.optimizer.momentum_optimizer
    momentum.momentum_optimizer_value = _MOMENTUM
    momentum.learning_rate.constant_learning_rate.learning_rate = _RATE
    made = {}

    def build(config, is_training):
        made['detector'] = build_detector()
        return made['detector']

    def build_train(config, input_context, seed, start, left_out, step=0):
        # A restart is told how many batches this worker has taken.
        made['start'] = int(start[0, 0])
        return record_order.counted(batches(input_context), made['start'])

    root = 'object_detection.'
    with (
        mock.patch(f'{root}builders.model_builder.build', build),
        mock.patch(f'{root}builders.dataset_builder.build_train', build_train),
        mock.patch(f'{root}validation.validate.validate'),
        # It traces the detector once more.
        mock.patch(f'{root}training.monitoring.model_summary.lines', return_value=['tiny']),
        # XLA compiles crops for `compare_replicas`; that takes seconds in each process.
        mock.patch(f'{root}core.bilinear._gather_by_xla', bilinear._multiply),
    ):
        loop.train(
            config,
            model_dir,
            num_steps=num_steps,
            intervals=Intervals(log=1, checkpoint=0),
            record_summaries=False,
            seed=_SEED,
            strategy=strategy,
        )
    index = strategy.cluster_resolver.task_id
    told = {'start': made['start']} | tell(strategy, index)
    np.savez(os.path.join(output, f'worker{index}'), **told, **weights(made['detector']))
    pathlib.Path(output, f'end{index}').write_text(lose_the_other(strategy, index))


def tell(strategy: tf.distribute.Strategy, index: int) -> dict[str, object]:
    """What the workers tell each other."""
    longer = [3, 3 * 2**20]
    return {
        'described': strategies.describe(strategy),
        'stops': [collectives.agree_on_stop(strategy, flag) for flag in (False, index == 1)],
        'seed': collectives.value_of_chief(strategy, 2**40 + index),
        'disagreement': error_of(
            lambda: collectives.check_agreement(strategy, lambda: 5 * index, timeout=0.1)
        ),
        'failure': error_of(lambda: collectives.on_chief(strategy, lambda: 1 / 0)),
        'reason': collectives.reason_of_chief(strategy, lambda: None if index else 'mAP is 0.5'),
        'no reason': str(collectives.reason_of_chief(strategy, lambda: None)),
        'rows': collectives.gather_rows(strategy, np.array([index, 2**40 + index])),
        # More than goes into one message.
        'sizes': [len(value) for value in collectives.gather_values(strategy, 'x' * longer[index])],
    }


def lose_the_other(strategy: tf.distribute.Strategy, index: int) -> str:
    """Ends one worker at once, as a kill would; returns what the other is told."""
    if index == 1:
        os._exit(0)
    return error_of(lambda: ask_in_vain(strategy))


def ask_in_vain(strategy: tf.distribute.Strategy) -> None:
    with strategies.lost_workers_named(strategy):
        collectives.agree_on_stop(strategy, False)


def error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return ''


def run(
    function: Callable[..., None], arguments: Sequence[object], cluster: str, log_path: str
) -> None:
    """Calls the function in this process, which is the one of a cluster that TF_CONFIG names.

    Args:
      function: one of this module.
      arguments: of the function.
      cluster: the value of TF_CONFIG; empty for none.
      log_path: the file that gets what the process writes to stderr.
    """
    with open(log_path, 'w') as log:
        os.dup2(log.fileno(), 2)
    if cluster:
        os.environ['TF_CONFIG'] = cluster
    with quick_graphs.without_stacks(), quick_graphs.unoptimized():
        function(*arguments)
