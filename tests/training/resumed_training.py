"""Trains on records in a process of its own that a test may kill, in several ways.

As a program, one of several workers, its arguments are those of `run`.

Importing this module imports all that a training needs and runs no operation, so that a fork
server which has done it starts each training in a fraction of the time.
"""

import glob
import logging
import os
import pathlib
import sys
from unittest import mock

import numpy as np
import tensorflow as tf

from object_detection.config.job_options import TrainOptions
from object_detection.core import sampling
from object_detection.core.loss_sum import LossSum
from object_detection.protos import pipeline_pb2
from object_detection.training.distribution import strategies, strategy_choice
from object_detection.training.loop import train
from object_detection.training.monitoring.run_types import Intervals
from tests.data import examples
from tests.training import fakes, step_runs

NUM_IMAGES = 14
SEED = 5
CHECKPOINT_EVERY = 4
_ADAMW = """
  optimizer {
    layer_decay: 0.8 moving_average_ramp: 5
    adamw_optimizer { learning_rate {
      cosine_restarts_learning_rate { learning_rate_base: 0.001 first_period_steps: 9 }
      warmup { steps: 4 }
    } }
  }"""
_DETR = """
  num_classes: 4
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  feature_extractor {
    resnet {
      embedding_size: 8 hidden_sizes: [8, 8, 16, 16] depths: [1, 1, 1, 1] is_bottleneck: false
    }
    freeze_norms: false
  }
  decoder { width: 16 num_layers: 2 num_heads: 2 hidden: 16 dropout: 0.1 }
"""
# Noisy queries, and dropout in the encoder and the decoder.
_RT_DETR = f"""model {{ detr {{
  {_DETR}
  feature_extractor {{ levels: [3, 4, 5] }}
  encoder {{ hybrid {{
    width: 16 attended_maps: 2 num_heads: 2 hidden: 16 depth_multiplier: 0.34 dropout: 0.1
  }} }}
  queries {{ count: 10 denoising: 6 }}
  decoder {{ deformable_attention {{ points: 2 }} }}
}} }}"""
_PLAIN_DETR = f"""model {{ detr {{
  {_DETR}
  feature_extractor {{ levels: 4 }}
  encoder {{ transformer {{ width: 16 num_layers: 1 num_heads: 2 hidden: 16 }} }}
  queries {{ count: 10 boxes: NONE }}
  loss {{ classification: SOFTMAX }}
}} }}"""
# Of a real detector, ways to train it; 'fake' is one of a few weights.
VARIANTS = {
    'plain': '',
    'accumulation': 'train_config { batch_size: 4 gradient_accumulation_steps: 2 }',
    'bfloat16': 'train_config { precision: MIXED_BFLOAT16 }',
    'float16': """train_config {
      precision: MIXED_FLOAT16 loss_scale { dynamic { growth_steps: 3 } }
    }""",
    'dropout': """model { faster_rcnn { second_stage_box_predictor { mask_rcnn_box_predictor {
      use_dropout: true
    } } } }""",
    'buckets': """
      model { faster_rcnn { image_resizer { keep_aspect_ratio_resizer {
        min_dimension: 64 max_dimension: 96 pad_height: 64 pad_width: 96
      } } } }
      train_input_reader {
        aspect_ratio_buckets { height: 64 width: 96 } aspect_ratio_buckets { height: 96 width: 64 }
      }""",
    # Rare classes: images that are repeated, and classes that are sampled.
    'rare': """
      train_input_reader { repeat_factor_sampling { threshold: 0.9 } }
      model { faster_rcnn {
        second_stage_post_processing { score_converter: SIGMOID }
        second_stage_classification_loss {
          weighted_sigmoid { label_smoothing: 0.1 } federated_loss { num_classes: 2 }
        }
      } }""",
    'mixture': 'train_input_reader { sample_from_datasets_weights: [0.7, 0.3] }',
    'rt_detr': _RT_DETR,
    'detr accumulation': f"""
      {_PLAIN_DETR}
      train_config {{ batch_size: 4 gradient_accumulation_steps: 2 }}""",
    # Its data end before its steps do.
    'epochs': 'train_input_reader { num_epochs: 3 }',
    'replicas': 'train_config { batch_size: 2 }',
    'adamw replicas': f'train_config {{ batch_size: 2 {_ADAMW} }}',
    'adamw accumulation': f"""train_config {{
      batch_size: 4 gradient_accumulation_steps: 2 {_ADAMW}
    }}""",
    'muon float16': """train_config {
      precision: MIXED_FLOAT16 loss_scale { dynamic { growth_steps: 3 } }
      optimizer { layer_decay: 0.7 muon_optimizer { learning_rate {
        one_cycle_learning_rate { learning_rate_base: 0.001 total_steps: 18 }
      } } }
    }""",
}
_CONFIG = """
train_config {
  batch_size: 2
  # So random a detector would diverge.
  gradient_clipping_by_norm: 1.0
  deterministic_ops: true
  data_augmentation_options { random_horizontal_flip { } }
  data_augmentation_options { random_adjust_brightness { } }
}
train_input_reader {
  max_number_of_boxes: 5 shuffle_buffer_size: 5 filter_empty_images: true
  load_instance_masks: true mask_type: PNG_MASKS
}
"""


class NoisyDetector(fakes.FakeDetector):
    """Its loss depends on the sampling noise of each image; it has the classes of `config_of`."""

    def __init__(self):
        super().__init__()
        self.num_classes = step_runs.tiny_recipe().model.faster_rcnn.num_classes

    def loss_sums(self, predictions, groundtruth, seeds=None):
        sums = super().loss_sums(predictions, groundtruth)
        noise = tf.reduce_mean(sampling.sampling_noise(seeds, 1))
        return {name: LossSum(s * (0.5 + noise), count) for name, (s, count) in sums.items()}


def write_images(folder: pathlib.Path) -> str:
    """Writes records of images in two shapes, some without objects; returns their pattern."""
    serialized = []
    for i in range(NUM_IMAGES):
        size = (30, 44) if i % 3 else (44, 30)
        mask = np.zeros(size)
        mask[5:20, 5:20] = 1
        serialized.append(
            examples.example(
                [[0.1, 0.1, 0.4 + i / 30, 0.7]] * (i % 4),
                [1 + i % 2] * (i % 4),
                source_id=str(i),
                image=examples.png(examples.noise(*size, seed=i)),
                masks=[mask] * (i % 4),
            )
        )
    for shard in range(2):
        examples.write_records(folder / f'records-{shard}', serialized[shard::2])
    return str(folder / 'records-?')


def config_of(variant: str, records: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    """A config of a tiny Mask R-CNN, trained in one of the `VARIANTS`."""
    pipeline = step_runs.tiny_recipe()
    for field in ('aspect_ratio_buckets', 'label_map_path'):
        pipeline.train_input_reader.ClearField(field)
    for field in ('fine_tune_checkpoint', 'data_augmentation_options'):
        pipeline.train_config.ClearField(field)
    pipeline.train_config.optimizer.use_moving_average = True
    for part in (_CONFIG, VARIANTS.get(variant, '')):
        step_runs.text_format.Merge(part, pipeline)
    if pipeline.model.HasField('detr'):
        pipeline.train_input_reader.load_instance_masks = False
    paths = sorted(glob.glob(records)) if variant == 'mixture' else [records]
    pipeline.train_input_reader.tf_record_input_reader.input_path[:] = paths
    return pipeline


def _fake(records: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    from object_detection.builders import dataset_builder

    build_train = dataset_builder.build_train
    fakes.patch_builders(
        lambda target, value: mock.patch(target, value).start(), detector=NoisyDetector
    )
    # The real input.
    mock.patch('object_detection.builders.dataset_builder.build_train', build_train).start()
    pipeline = fakes.pipeline_config(deterministic_ops=True)
    pipeline.model.CopyFrom(config_of('fake', records).model)
    pipeline.model.faster_rcnn.image_resizer.fixed_shape_resizer.height = 8
    pipeline.model.faster_rcnn.image_resizer.fixed_shape_resizer.width = 8
    reader = config_of('fake', records)
    pipeline.train_input_reader.CopyFrom(reader.train_input_reader)
    pipeline.train_config.data_augmentation_options.extend(
        reader.train_config.data_augmentation_options
    )
    pipeline.train_config.optimizer.use_moving_average = True
    return pipeline


def run(
    directory: str, records: str, variant: str, num_steps: int, log_path: str, call: int = 0
) -> None:
    """Trains on; the log is added to `log_path`. Only the first start is told the seed.

    Where the environment names several workers, this process is one of them.
    """
    with open(log_path, 'a') as log:
        os.dup2(log.fileno(), 2)
    # An import of the process that this one comes from may have set logging up.
    logging.basicConfig(
        level=logging.INFO, format='%(levelname)s %(name)s: %(message)s', force=True
    )
    # Number of threads of the machine's, which must not matter.
    tf.config.threading.set_intra_op_parallelism_threads(2)
    if variant.endswith('replicas'):
        (device,) = tf.config.list_physical_devices('CPU')
        tf.config.set_logical_device_configuration(
            device, [tf.config.LogicalDeviceConfiguration()] * 2
        )
        strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])
    else:
        strategy = strategies.build(strategy_choice.choose(TrainOptions()))
    has_checkpoint = os.path.exists(os.path.join(directory, 'checkpoint'))
    result = train(
        _fake(records) if variant == 'fake' else config_of(variant, records),
        directory,
        num_steps=num_steps,
        intervals=Intervals(log=1 if call == 1 else 100, checkpoint=CHECKPOINT_EVERY, call=call),
        max_to_keep=2,
        record_summaries=False,
        seed=None if has_checkpoint else SEED,
        strategy=strategy,
    )
    raise SystemExit(result.exit_status)


if __name__ == '__main__':
    directory, records, variant, num_steps, log_path, call = sys.argv[1:]
    run(directory, records, variant, int(num_steps), log_path, int(call))
