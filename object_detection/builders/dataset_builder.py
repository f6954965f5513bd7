"""Builds the tf.data input pipelines that a pipeline config describes."""

import logging
import secrets

import numpy as np
import tensorflow as tf

from object_detection.builders import preprocessor_builder, training_rules
from object_detection.builders.input_readers import batches as batches_builder
from object_detection.builders.input_readers import channels, rules, tf_records
from object_detection.builders.input_readers import data_service as data_service_reader
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.builders.input_readers import synthetic as synthetic_reader
from object_detection.config import families, ranges
from object_detection.data import objects, sequence_examples
from object_detection.data.pipeline import record_order, synthetic
from object_detection.data.pipeline.bad_records import BadRecords
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.errors import expected, raise_if_any
from object_detection.protos import input_reader_pb2, model_pb2, pipeline_pb2

_log = logging.getLogger(__name__)


# AutoGraph would take seconds to rewrite functions of the input that do not need it.
@tf.autograph.experimental.do_not_convert
def build_train(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig,
    *,
    input_context: tf.distribute.InputContext | None = None,
    seed: int | None = None,
    start: np.ndarray | None = None,
    batch_size: int | None = None,
    job: int | None = None,
    left_out: BadRecords | None = None,
    step: int = 0,
) -> tf.data.Dataset:
    """Builds the training data: shuffled, augmented, repeated, in batches.

    The order is a function of seed, epoch and input pipeline. The augmentation of an image is a
    function of these and its position in the epoch.

    Args:
      pipeline_config: config whose `train_input_reader`, `train_config` and `model` are read.
      input_context: which part of the data this input pipeline reads, and for how many replicas.
      seed: seed of the order and every random choice; None draws one.
      start: int64 [1 + W, R], `iterator_state.cursors_of` the batch before the first; None starts
        at the beginning.
      batch_size: images per batch of this dataset; None takes `train_config.batch_size`, divided by
        the replicas of `input_context`.
      job: number of a job of a data service, which all workers of one start of a run share, and
        no other start uses; None draws one.
      left_out: counts bad records; None counts them as the reader says, without a file.
      step: number of training steps done before the first batch; augmentations with a
        `stop_after_step` up to it are left out.

    Returns:
      Batches as `ExampleTransform` returns them, each entry with a leading batch axis; and
      stream_state int64 [K], to resume the dataset after the batch (not with a data service).

    Raises:
      ValueError: if a field of the config is not supported or contradicts another one, or an input
        path matches no file.
    """
    train_config, reader = pipeline_config.train_config, pipeline_config.train_input_reader
    _check_reader(pipeline_config, reader, 'train_input_reader')
    raise_if_any(training_rules.score_problems(train_config, reader))
    raise_if_any(training_rules.stop_problems(train_config, reader))
    if batch_size is None:
        batch_size = train_config.batch_size
        if input_context is not None:
            batch_size = input_context.get_per_replica_batch_size(batch_size)
    if seed is None:
        seed = secrets.randbits(31)
    if start is None:
        start = np.zeros([1, tf_records.cursor_size(reader)], np.int64)
    key = record_order.key_of(seed, tf_records.pipeline_of(input_context)[0])
    if reader.HasField('synthetic_input_reader'):
        batches = synthetic_reader.build(
            pipeline_config.model,
            reader,
            batch_size=batch_size,
            replicas=_replicas(input_context),
            seed=key,
        )
        return record_order.counted(batches.repeat(), int(start[0, 0]))
    transform = train_transform(pipeline_config, step)
    if reader.data_service:
        return data_service_reader.build(
            reader,
            transform,
            batch_size=batch_size,
            replicas=_replicas(input_context),
            seed=seed,
            job=job,
        )
    records = tf_records.read(
        reader,
        'train_input_reader',
        shuffle=reader.shuffle,
        num_epochs=reader.num_epochs or None,
        seed=seed,
        input_context=input_context,
        empty=examples_builder.empty_image_filter(reader, 'train_input_reader'),
        repeats_rare=reader.HasField('repeat_factor_sampling'),
        start=record_order.earliest(start) if len(transform.stages) > 1 else start,
    )
    if rules.holds_sequences(reader):
        records = sequence_examples.one_frame(records, reader.frame_index, key)
    return batches_builder.build(
        records,
        left_out or examples_builder.left_out(reader, 'train_input_reader'),
        reader,
        transform,
        batch_size=batch_size,
        drop_remainder=reader.drop_remainder,
        replicas=_replicas(input_context),
        key=key,
        start=start,
    )


def train_transform(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig, step: int = 0
) -> ExampleTransform:
    """Builds what cleans, augments, resizes and pads the training examples of a config.

    Args:
      pipeline_config: the config.
      step: as in `build_train`.

    Raises:
      ValueError: if a step of augmentation or the model is misconfigured.
    """
    train_config, reader = pipeline_config.train_config, pipeline_config.train_input_reader
    options = training_rules.completed(train_config.data_augmentation_options, reader)
    steps = preprocessor_builder.build_all(options, step)
    return examples_builder.transform(
        pipeline_config.model,
        reader,
        label_steps=(*steps.label_steps, *([objects.drop_crowds] if reader.skip_crowd else [])),
        augmentations=steps.augmentations,
        merge_multiple_label_boxes=train_config.merge_multiple_label_boxes,
        use_multiclass_scores=train_config.use_multiclass_scores,
        class_weight=train_config.class_weight,
    )


@tf.autograph.experimental.do_not_convert
def build_eval(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig,
    reader_index: int = 0,
    *,
    batch_size: int | None = None,
    shard: tuple[int, int] | None = None,
    left_out: BadRecords | None = None,
) -> tf.data.Dataset:
    """Builds the evaluation data: every example once, the last partial batch included.

    Examples are in the order of the files, whose names are sorted, unless the reader has `shuffle:
    true`; with several `aspect_ratio_buckets`, batches are in the order in which they get full.

    Args:
      pipeline_config: config whose `eval_input_reader`, `eval_config` and `model` are read.
      reader_index: index of the `eval_input_reader` entry.
      batch_size: None takes `eval_config.batch_size`.
      shard: (index, count) of the part of this worker; all parts together have
        `eval_config.eval_samples` images. None reads all images.
      left_out: as in `build_train`.

    Returns:
      Batches as `ExampleTransform` returns them for evaluation.

    Raises:
      ValueError: in the cases of `build_train`, and if there is no such reader.
    """
    readers = pipeline_config.eval_input_reader
    if not 0 <= reader_index < len(readers):
        raise expected(
            'reader_index', f'one of {len(readers)} eval_input_reader entries', reader_index
        )
    reader, where = readers[reader_index], f'eval_input_reader[{reader_index}]'
    _check_reader(pipeline_config, reader, where)
    if reader.HasField('drop_remainder') and reader.drop_remainder:
        _log.warning('%s.drop_remainder: the last partial batch is evaluated all the same.', where)
    batch_size = batch_size or pipeline_config.eval_config.batch_size
    if reader.HasField('synthetic_input_reader'):
        batches = synthetic_reader.build(
            pipeline_config.model, reader, batch_size=batch_size, seed=0, for_evaluation=True
        )
        every = max(1, reader.sample_1_of_n_examples)
        count = -(-reader.synthetic_input_reader.num_examples // every)
        if shard is None:
            return synthetic.numbered(batches, batch_size, count)
        count = min(count, pipeline_config.eval_config.eval_samples or count)
        return synthetic.numbered(batches, batch_size, count).shard(shard[1], shard[0])
    records = tf_records.read(
        reader, where, shuffle=reader.HasField('shuffle') and reader.shuffle, num_epochs=1, seed=0
    )
    if rules.holds_sequences(reader):
        records = sequence_examples.all_frames(records, reader.frame_index)
    if shard is not None:
        # Before images are decoded.
        records = records.take(pipeline_config.eval_config.eval_samples or -1)
        records = records.shard(shard[1], shard[0])
    return batches_builder.build(
        records,
        left_out or examples_builder.left_out(reader, where),
        reader,
        examples_builder.transform(
            _evaluated_model(pipeline_config),
            reader,
            for_evaluation=True,
            empty_image_classes_to_ones=(
                pipeline_config.eval_config.image_classes_field_map_empty_to_ones
            ),
        ),
        batch_size=batch_size,
        drop_remainder=False,
        key=0,
    )


def _evaluated_model(pipeline: pipeline_pb2.TrainEvalPipelineConfig) -> model_pb2.DetectionModel:
    """Returns the model's message, with the resizer of evaluations."""
    if not pipeline.eval_config.force_no_resize:
        return pipeline.model
    model = model_pb2.DetectionModel()
    model.CopyFrom(pipeline.model)
    config = families.options(model)
    if config is not None:
        config.image_resizer.identity_resizer.SetInParent()
    return model


def _check_reader(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, reader: input_reader_pb2.InputReader, where: str
) -> None:
    ranges.check(reader, path=where)
    raise_if_any(rules.check(reader, where))
    raise_if_any(channels.check(pipeline, reader, where))


def _replicas(input_context: tf.distribute.InputContext | None) -> int:
    """Returns the number of replicas that receive batches from one input pipeline."""
    if input_context is None:
        return 1
    return input_context.num_replicas_in_sync // input_context.num_input_pipelines
