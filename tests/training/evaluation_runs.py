"""Evaluations on replicas, in processes of their own.

`compare_replicas` evaluates the same images on one replica and on two logical devices. As a program
with the argument OUTPUT, this is one of the processes that TF_CONFIG names: it trains twice with
evaluations that all workers share, and beside an evaluation in another process, whose second result
ends the training; it prints how these ended.
"""

import json
import pathlib
import sys
import time
from unittest import mock

import tensorflow as tf

from object_detection.config.job_options import TrainOptions
from object_detection.data.pipeline import record_order
from object_detection.optimizers import plateau
from object_detection.training import loop
from object_detection.training.distribution import strategies, strategy_choice
from object_detection.training.evaluation import async_evaluation, inference
from object_detection.training.monitoring.progress import Silent
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes
from tests.training.evaluation import fake_evaluation_process

NUM_IMAGES = 7
_BATCH = 4
# The last of the asynchronous training, unless a result ends it.
_MANY_STEPS = 1000


def compare_replicas() -> dict[str, object]:
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    results = {}
    for name, strategy in (
        ('one', tf.distribute.get_strategy()),
        ('two', tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])),
    ):
        tf.keras.utils.set_random_seed(0)
        with strategy.scope():
            detector = fakes.FakeDetector()
            detector.build_variables()
        data = fakes.dataset(NUM_IMAGES, _BATCH)
        evaluator = fakes.FakeEvaluator()
        predict = inference.make_predict(
            detector, data.element_spec, strategy=strategy, batch_size=_BATCH
        )
        results[name] = inference.evaluate(detector, data, [evaluator], predict=predict)
        results[f'images of {name}'] = evaluator.source_ids
    return results


def work(output: pathlib.Path) -> dict[str, object]:
    strategy = strategies.build(strategy_choice.choose(TrainOptions(num_workers=2)))
    with mock.patch.object(async_evaluation, '_MODULE', fake_evaluation_process.__name__):
        fakes.patch_builders(lambda target, value: mock.patch(target, value).start())
        builders = 'object_detection.builders.dataset_builder'
        mock.patch(f'{builders}.build_eval', _build_eval).start()
        mock.patch(f'{builders}.build_train', _build_train).start()
        factors = []
        with mock.patch.object(plateau.Plateau, 'update', _noting(factors)):
            shared = _train(output / 'shared', strategy, num_steps=3)
            beside = _train(output / 'beside', strategy, num_steps=_MANY_STEPS, is_async=True)
    return {
        'factors': factors,
        'metrics': shared.metrics,
        'step': beside.step,
        'reason': beside.reason,
    }


def _noting(factors: list[tuple[int, float]]):
    """What notes the steps of the results that lower the rate, and the factors after them."""
    update = plateau.Plateau.update

    def noting(self, step, score):
        lowered = update(self, step, score)
        factors.append((step, float(self.factor.numpy())))
        return lowered

    return noting


def _train(directory: pathlib.Path, strategy, *, num_steps: int, is_async: bool = False):
    config = fakes.pipeline_config(batch_size=_BATCH)
    config.eval_config.batch_size = 2
    config.train_config.optimizer.reduce_on_plateau.patience = 1
    config.train_config.optimizer.reduce_on_plateau.factor = 0.5
    config.train_config.optimizer.reduce_on_plateau.metric = 'images'
    config.eval_input_reader.add().label_map_path = str(directory.parent / 'labels.pbtxt')
    if is_async:
        config.eval_config.async_evaluation.SetInParent()
        config.eval_config.early_stopping.target.add(metric='images', value=4.0)
    return loop.train(
        config,
        str(directory),
        num_steps=num_steps,
        intervals=Intervals(log=1000, evaluation=2, checkpoint=0),
        record_summaries=False,
        seed=1,
        progress=Silent(),
        strategy=strategy,
    )


def _build_eval(config, reader_index, shard, left_out):
    index, count = shard
    return fakes.dataset(5, 1).shard(count, index).unbatch().batch(config.eval_config.batch_size)


def _build_train(config, input_context, seed, start, left_out, step=0):
    def pause(batch):
        # So that results arrive before the last step.
        tf.numpy_function(lambda: time.sleep(0.02), [], [])
        return batch

    size = input_context.get_per_replica_batch_size(_BATCH)
    batches = fakes.dataset(size, size, repeat=True).map(pause)
    return record_order.counted(batches, int(start[0, 0]))


if __name__ == '__main__':
    print(json.dumps(work(pathlib.Path(sys.argv[1]))))
