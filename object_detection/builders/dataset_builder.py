"""Builds the tf.data input pipelines that a pipeline config describes."""

import hashlib
import logging
import secrets
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from object_detection.builders import (
    image_resizer_builder,
    preprocessor_builder,
    records_builder,
)
from object_detection.config import class_weights, unsupported
from object_detection.core.fields import InputFields
from object_detection.data import (
    data_service,
    label_map,
    objects,
    pipeline,
    record_order,
    stream_state,
    synthetic,
)
from object_detection.data.decoder import NUMERICAL_MASKS, PNG_MASKS, ExampleDecoder
from object_detection.data.dropped_objects import DroppedObjectsReport, UnknownClassReport
from object_detection.data.empty_images import EmptyImageFilter
from object_detection.data.pipeline import ExampleTransform
from object_detection.protos import input_reader_pb2, model_pb2, pipeline_pb2

_log = logging.getLogger(__name__)

MASK_TYPES = {
    input_reader_pb2.DEFAULT: NUMERICAL_MASKS,
    input_reader_pb2.NUMERICAL_MASKS: NUMERICAL_MASKS,
    input_reader_pb2.PNG_MASKS: PNG_MASKS,
}

# Of the images of a synthetic reader where nothing says their size: COCO's most frequent one.
_USUAL_SIZE = (480, 640)


def build_train(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig,
    *,
    input_context: tf.distribute.InputContext | None = None,
    seed: int | None = None,
    start: np.ndarray | None = None,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Builds the training data: shuffled, augmented, repeated, in batches.

    The order is a function of seed, epoch and input pipeline, and so is what augments an image,
    with its position in the epoch.

    Args:
      pipeline_config: of which `train_input_reader`, `train_config` and `model` are read.
      input_context: which part of the data this input pipeline reads, and for how many replicas.
      seed: of the order and every random choice; None draws one.
      start: int64 [1 + W, R], `stream_state.rows` of the batch before the first; None begins.
      batch_size: images a batch of this dataset; None takes `train_config.batch_size`, divided by
        the replicas of `input_context`.

    Returns:
      Batches as `ExampleTransform` returns them, each entry with a leading batch axis; and
      stream_state int64 [K], from where the dataset goes on after the batch.

    Raises:
      ValueError: if a field of the config is not supported or contradicts another one, or an input
        path matches no file.
    """
    train_config, reader = pipeline_config.train_config, pipeline_config.train_input_reader
    _check_reader(reader, 'train_input_reader')
    if train_config.use_multiclass_scores and not reader.load_multiclass_scores:
        raise ValueError(
            'train_config.use_multiclass_scores: expected '
            'train_input_reader.load_multiclass_scores: true with it. Received: false there.'
        )
    if batch_size is None:
        batch_size = train_config.batch_size
        if input_context is not None:
            batch_size = input_context.get_per_replica_batch_size(batch_size)
    if seed is None:
        seed = secrets.randbits(31)
    if start is None:
        start = np.zeros([1, records_builder.row_size(reader)], np.int64)
    key = record_order.key_of(seed, records_builder.pipeline_of(input_context)[0])
    if reader.HasField('synthetic_input_reader'):
        batches = _synthetic(
            pipeline_config.model,
            reader,
            batch_size=batch_size,
            replicas=_replicas(input_context),
            seed=key,
        )
        return stream_state.counted(batches.repeat(), int(start[0, 0]))
    steps = preprocessor_builder.build_all(train_config.data_augmentation_options)
    transform = _transform(
        pipeline_config.model,
        reader,
        label_steps=(*steps.label_steps, *([objects.drop_crowds] if reader.skip_crowd else [])),
        augmentations=steps.augmentations,
        merge_multiple_label_boxes=train_config.merge_multiple_label_boxes,
        use_multiclass_scores=train_config.use_multiclass_scores,
        class_weight=train_config.class_weight,
    )
    if reader.data_service:
        return _served(reader, transform, batch_size, _replicas(input_context), seed)
    records = records_builder.read(
        reader,
        'train_input_reader',
        shuffle=reader.shuffle,
        num_epochs=reader.num_epochs or None,
        seed=seed,
        input_context=input_context,
        empty=_empty_image_filter(reader, 'train_input_reader'),
        start=start,
    )
    return _examples(
        records,
        reader,
        transform,
        batch_size=batch_size,
        drop_remainder=reader.drop_remainder,
        replicas=_replicas(input_context),
        key=key,
        start=start,
    )


def build_eval(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig,
    reader_index: int = 0,
    *,
    batch_size: int | None = None,
    shard: tuple[int, int] | None = None,
) -> tf.data.Dataset:
    """Builds the evaluation data: every example once, the last partial batch included.

    The order is that of the files, whose names are sorted, unless the reader says `shuffle: true`;
    with several `aspect_ratio_buckets`, batches come in the order in which they are full.

    Args:
      pipeline_config: of which `eval_input_reader`, `eval_config` and `model` are read.
      reader_index: which of the `eval_input_reader` entries.
      batch_size: None takes `eval_config.batch_size`.
      shard: (index, count) of the parts that workers share the images in, of which there are
        `eval_config.eval_samples` together; None is all of them, however many.

    Returns:
      Batches as `ExampleTransform` returns them for evaluation.

    Raises:
      ValueError: as `build_train`; or if there is no such reader.
    """
    readers = pipeline_config.eval_input_reader
    if not 0 <= reader_index < len(readers):
        raise ValueError(
            f'The config has {len(readers)} eval_input_reader entries. '
            f'Received: reader_index={reader_index}.'
        )
    reader, where = readers[reader_index], f'eval_input_reader[{reader_index}]'
    _check_reader(reader, where)
    if reader.HasField('drop_remainder') and reader.drop_remainder:
        _log.warning('%s.drop_remainder: the last partial batch is evaluated all the same.', where)
    batch_size = batch_size or pipeline_config.eval_config.batch_size
    if reader.HasField('synthetic_input_reader'):
        batches = _synthetic(
            pipeline_config.model, reader, batch_size=batch_size, seed=0, for_evaluation=True
        )
        every = max(1, reader.sample_1_of_n_examples)
        count = -(-reader.synthetic_input_reader.num_examples // every)
        if shard is None:
            return synthetic.numbered(batches, batch_size, count)
        count = min(count, pipeline_config.eval_config.eval_samples or count)
        return synthetic.numbered(batches, batch_size, count).shard(shard[1], shard[0])
    records = records_builder.read(
        reader, where, shuffle=reader.HasField('shuffle') and reader.shuffle, num_epochs=1, seed=0
    )
    if shard is not None:
        # Before images are decoded.
        records = records.take(pipeline_config.eval_config.eval_samples or -1)
        records = records.shard(shard[1], shard[0])
    return _examples(
        records,
        reader,
        _transform(pipeline_config.model, reader, for_evaluation=True),
        batch_size=batch_size,
        drop_remainder=False,
        key=0,
    )


def bucket_sizes(reader: input_reader_pb2.InputReader) -> tuple[tuple[int, int], ...]:
    """Returns (height, width) of each of a reader's `aspect_ratio_buckets`; () without them.

    With several, images are [b, None, None, 3] in the `element_spec`, and every batch has one of
    these sizes; in a step, all replicas of one input pipeline have the same.
    """
    return tuple((bucket.height, bucket.width) for bucket in reader.aspect_ratio_buckets)


def _empty_image_filter(
    reader: input_reader_pb2.InputReader, where: str
) -> EmptyImageFilter | None:
    if not reader.filter_empty_images:
        return None
    decoder = ExampleDecoder(
        label_map=label_map.load(reader.label_map_path) if reader.label_map_path else None
    )
    return EmptyImageFilter(decoder, skip_crowd=reader.skip_crowd, where=where)


def _examples(
    records: tf.data.Dataset,
    reader: input_reader_pb2.InputReader,
    transform: ExampleTransform,
    *,
    batch_size: int,
    drop_remainder: bool,
    replicas: int = 1,
    key: int,
    start: np.ndarray | None = None,
) -> tf.data.Dataset:
    """Decodes, transforms and batches records.

    Args:
      records: (rows, serialized example), as `records_builder.read` gives them.
      reader, transform, batch_size, drop_remainder, replicas: of the batches.
      key: of what is random.
      start: where the records begin, for training; None leaves out `STREAM_STATE`.
    """
    decoder = ExampleDecoder(
        label_map=label_map.load(reader.label_map_path) if reader.label_map_path else None,
        mask_type=_mask_type(reader),
        num_keypoints=reader.num_keypoints,
        load_multiclass_scores=reader.load_multiclass_scores,
        on_unknown_texts=UnknownClassReport(reader.label_map_path).update,
    )
    has_waiting = len(reader.aspect_ratio_buckets) > 1

    def load(rows: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        # The seed depends on nothing but the record's place, so the number of threads does not
        # matter.
        example = transform(decoder(serialized), tf.stack([key, rows[0, 0]]))
        if start is None:
            return example
        return {**example, InputFields.STREAM_STATE: rows if has_waiting else rows[1]}

    examples = records.map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if has_waiting and start is not None:
        window = batch_size * replicas
        examples = stream_state.with_waiting(examples, bucket_sizes(reader), window, start)
    batches = _batch(examples, reader, batch_size, drop_remainder=drop_remainder, replicas=replicas)
    batches = batches.map(_tell_dropped_objects())
    if start is not None:
        batches = batches.map(stream_state.of_batch)
    return _ahead(batches, reader)


def _served(
    reader: input_reader_pb2.InputReader,
    transform: ExampleTransform,
    batch_size: int,
    replicas: int,
    seed: int,
) -> tf.data.Dataset:
    """Has training batches made by a data service, without `STREAM_STATE`."""
    decoder = ExampleDecoder(
        label_map=label_map.load(reader.label_map_path) if reader.label_map_path else None,
        mask_type=_mask_type(reader),
        num_keypoints=reader.num_keypoints,
        load_multiclass_scores=reader.load_multiclass_scores,
    )

    def load(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        # Records come in any order, so that nothing of theirs could be a seed.
        noise = tf.random.uniform([2], maxval=tf.int64.max, dtype=tf.int64)
        return transform(decoder(serialized), noise)

    records = records_builder.read_served(
        reader, 'train_input_reader', seed, _empty_image_filter(reader, 'train_input_reader')
    )
    examples = records.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    # Batches of several processes come mixed: of one size for all replicas they are one until here.
    has_sizes = len(reader.aspect_ratio_buckets) > 1
    together = batch_size * replicas if has_sizes else batch_size
    batches = _batch(examples, reader, together, drop_remainder=reader.drop_remainder, replicas=1)
    described = repr((reader, seed, batch_size, replicas)).encode()
    data_service.check_answers(reader.data_service, 'train_input_reader.data_service')
    job = f'training-{hashlib.sha256(described).hexdigest()[:16]}'
    batches = data_service.through(batches, reader.data_service, job)
    if together != batch_size:
        batches = batches.rebatch(batch_size, drop_remainder=reader.drop_remainder)
    batches = batches.map(_tell_dropped_objects())
    return _ahead(batches, reader)


def _ahead(batches: tf.data.Dataset, reader: input_reader_pb2.InputReader) -> tf.data.Dataset:
    """Makes batches before they are asked for, in threads of their own if the reader says so."""
    batches = batches.prefetch(max(0, reader.num_prefetch_batches))
    if not reader.private_threadpool_size:
        return batches
    options = tf.data.Options()
    options.threading.private_threadpool_size = reader.private_threadpool_size
    return batches.with_options(options)


def _mask_type(reader: input_reader_pb2.InputReader) -> str | None:
    if not reader.load_instance_masks:
        return None
    # Such examples are made with PNG masks, whatever `mask_type` says of records.
    return PNG_MASKS if reader.HasField('coco_input_reader') else MASK_TYPES[reader.mask_type]


def _synthetic(
    model: model_pb2.DetectionModel,
    reader: input_reader_pb2.InputReader,
    *,
    batch_size: int,
    seed: int,
    replicas: int = 1,
    for_evaluation: bool = False,
) -> tf.data.Dataset:
    """Makes one batch of each size for each replica, which are kept in memory."""
    transform = _transform(model, reader, for_evaluation=for_evaluation)
    size = (transform.resizer.static_shape or _USUAL_SIZE)[:2]
    examples = synthetic.examples(
        # With one bucket, its size is the resizer's static shape.
        bucket_sizes(reader) or [size],
        batch_size * replicas,
        num_objects=reader.synthetic_input_reader.num_objects,
        num_classes=transform.num_classes,
        with_masks=reader.load_instance_masks,
        seed=seed,
    )
    _log.warning(
        'the %s data are synthetic: noise, made once and repeated. Speed can be measured; losses '
        'and metrics tell nothing',
        'evaluation' if for_evaluation else 'training',
    )
    examples = examples.enumerate().map(
        lambda index, example: transform(example, tf.stack([seed, index])),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    is_training = not for_evaluation
    batches = _batch(examples, reader, batch_size, drop_remainder=is_training, replicas=replicas)
    return batches.cache()


def _batch(
    examples: tf.data.Dataset,
    reader: input_reader_pb2.InputReader,
    size: int,
    *,
    drop_remainder: bool,
    replicas: int,
) -> tf.data.Dataset:
    """Batches examples, those of each bucket together if there are several."""
    if len(reader.aspect_ratio_buckets) > 1:
        return pipeline.batch_by_size(examples, size, drop_remainder=drop_remainder, group=replicas)
    return pipeline.batch(examples, size, drop_remainder=drop_remainder)


def _tell_dropped_objects() -> Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]:
    """Returns a map over batches that logs which images lost objects, and changes nothing."""
    report = DroppedObjectsReport()
    fields = (
        InputFields.NUM_INVALID_OBJECTS,
        InputFields.NUM_EXCESS_OBJECTS,
        InputFields.SOURCE_ID,
    )

    def update(*values: np.ndarray) -> np.int32:
        report.update(dict(zip(fields, values, strict=True)))
        return np.int32(0)

    def tell(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        invalid, excess, source_ids = (batch[field] for field in fields)
        # Python is called for the few batches only that have something to tell.
        tf.cond(
            tf.reduce_any((invalid > 0) | (excess > 0)),
            lambda: tf.numpy_function(update, [invalid, excess, source_ids], tf.int32),
            lambda: tf.constant(0),
        )
        return batch

    return tell


def _transform(model, reader, *, class_weight=(), **options) -> ExampleTransform:
    """Builds the transform for the detector that `model` (a DetectionModel) describes."""
    kind = model.WhichOneof('model')
    if kind is None:
        raise ValueError('model is not set; the input pipeline needs its num_classes and resizer.')
    config = getattr(model, kind)
    if reader.max_number_of_boxes < 1:
        raise ValueError(
            'InputReader.max_number_of_boxes must be positive. '
            f'Received: {reader.max_number_of_boxes}.'
        )
    if kind == 'faster_rcnn':
        options['mask_crop_size'] = config.groundtruth_mask_crop_size
    return ExampleTransform(
        class_weights=class_weights.resolve(
            class_weight, reader.label_map_path, config.num_classes
        ),
        resizer=image_resizer_builder.build(config.image_resizer, bucket_sizes(reader)),
        num_classes=config.num_classes,
        max_number_of_boxes=reader.max_number_of_boxes,
        **options,
    )


def _check_reader(reader: input_reader_pb2.InputReader, where: str) -> None:
    unsupported.check_unsupported(reader, path=where)
    if reader.input_type == input_reader_pb2.TF_SEQUENCE_EXAMPLE:
        raise ValueError(
            f'{where}.input_type: only TF_EXAMPLE is supported. Received: TF_SEQUENCE_EXAMPLE.'
        )
    if reader.WhichOneof('input_reader') in ('synthetic_input_reader', 'coco_input_reader'):
        return
    if not reader.tf_record_input_reader.input_path:
        raise ValueError(f'{where}.tf_record_input_reader.input_path is not set.')


def _replicas(input_context: tf.distribute.InputContext | None) -> int:
    """The number of replicas that one input pipeline gives batches to."""
    if input_context is None:
        return 1
    return input_context.num_replicas_in_sync // input_context.num_input_pipelines
