"""Builds the tf.data input pipelines that a pipeline config describes."""

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.builders import image_resizer_builder, preprocessor_builder
from object_detection.config import class_weights, unsupported
from object_detection.core.fields import InputFields
from object_detection.data import label_map, objects, pipeline
from object_detection.data.decoder import NUMERICAL_MASKS, PNG_MASKS, ExampleDecoder
from object_detection.data.dropped_objects import DroppedObjectsReport, UnknownClassReport
from object_detection.data.empty_images import EmptyImageFilter
from object_detection.data.pipeline import ExampleTransform
from object_detection.protos import input_reader_pb2, pipeline_pb2

_log = logging.getLogger(__name__)

MASK_TYPES = {
    input_reader_pb2.DEFAULT: NUMERICAL_MASKS,
    input_reader_pb2.NUMERICAL_MASKS: NUMERICAL_MASKS,
    input_reader_pb2.PNG_MASKS: PNG_MASKS,
}

# Bytes that are read of a TFRecord file at a time; each of the `num_readers` open files holds so
# many in memory.
_READ_BUFFER = 1 << 20


def build_train(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig,
    *,
    input_context: tf.distribute.InputContext | None = None,
    seed: int | None = None,
    deterministic: bool = True,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Builds the training data: shuffled, augmented, repeated, in batches.

    Args:
      pipeline_config: of which `train_input_reader`, `train_config` and `model` are read.
      input_context: which part of the data this input pipeline reads, and for how many replicas.
      seed: makes the order and every random choice reproducible; None draws one.
      deterministic: whether shuffled records wait for a slow one, so that their order is
        reproducible; without a seed they never do.
      batch_size: images a batch of this dataset; None takes `train_config.batch_size`, divided by
        the replicas of `input_context`.

    Returns:
      Batches as `ExampleTransform` returns them, each entry with a leading batch axis.

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
    records = read_records(
        reader,
        'train_input_reader',
        shuffle=reader.shuffle,
        num_epochs=reader.num_epochs or None,
        seed=seed,
        input_context=input_context,
        keep=_empty_image_filter(reader, 'train_input_reader'),
    )
    return _examples(
        records,
        reader,
        transform,
        batch_size=batch_size,
        drop_remainder=reader.drop_remainder,
        seed=_example_seed(seed, input_context),
        # Without a seed the order is left to chance anyway.
        deterministic=(deterministic and seed is not None) or not reader.shuffle,
    )


def build_eval(
    pipeline_config: pipeline_pb2.TrainEvalPipelineConfig,
    reader_index: int = 0,
    *,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Builds the evaluation data: every example once, the last partial batch included.

    The order is that of the files, whose names are sorted, unless the reader says `shuffle: true`.

    Args:
      pipeline_config: of which `eval_input_reader`, `eval_config` and `model` are read.
      reader_index: which of the `eval_input_reader` entries.
      batch_size: None takes `eval_config.batch_size`.

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
    records = read_records(
        reader, where, shuffle=reader.HasField('shuffle') and reader.shuffle, num_epochs=1, seed=0
    )
    return _examples(
        records,
        reader,
        _transform(pipeline_config.model, reader, for_evaluation=True),
        batch_size=batch_size or pipeline_config.eval_config.batch_size,
        drop_remainder=False,
        seed=0,
        deterministic=True,
    )


def read_records(
    reader: input_reader_pb2.InputReader,
    where: str,
    *,
    shuffle: bool,
    num_epochs: int | None,
    seed: int | None,
    input_context: tf.distribute.InputContext | None = None,
    keep: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
) -> tf.data.Dataset:
    """Reads the serialized examples of a reader's files; `num_epochs` None repeats for ever.

    `keep` takes the records of one pass, not yet shuffled, and returns those that are wanted.

    Raises:
      ValueError: if an input path matches no file, or `sample_from_datasets_weights` has not one
        weight an input path.
    """
    patterns = list(reader.tf_record_input_reader.input_path)
    files = [_matching_files(pattern, where) for pattern in patterns]
    weights = list(reader.sample_from_datasets_weights)
    options: dict[str, Any] = {
        'reader': reader,
        'shuffle': shuffle,
        'num_epochs': num_epochs,
        'seed': seed,
        'input_context': input_context,
        'keep': keep,
    }
    if not weights:
        return _read_files(sorted({name for names in files for name in names}), **options)
    if len(weights) != len(patterns):
        raise ValueError(
            f'{where}.sample_from_datasets_weights needs one weight for each of the '
            f'{len(patterns)} entries of input_path. Received: {weights}.'
        )
    return tf.data.Dataset.sample_from_datasets(
        [_read_files(names, **options) for names in files], weights, seed=seed
    )


def _read_files(
    files: Sequence[str],
    *,
    reader: input_reader_pb2.InputReader,
    shuffle: bool,
    num_epochs: int | None,
    seed: int | None,
    input_context: tf.distribute.InputContext | None,
    keep: Callable[[tf.data.Dataset], tf.data.Dataset] | None,
) -> tf.data.Dataset:
    """Interleaves files, takes this pipeline's part, shuffles and repeats.

    Subsets (every n-th record; this pipeline's records, where there are fewer files than
    pipelines) are taken before anything is shuffled, so that they are the same in every epoch.
    """
    pipelines = input_context.num_input_pipelines if input_context else 1
    pipeline_id = input_context.input_pipeline_id if input_context else 0
    takes_whole_files = len(files) >= pipelines
    has_subsets = reader.sample_1_of_n_examples > 1 or not takes_whole_files
    names = tf.data.Dataset.from_tensor_slices(list(files))
    if takes_whole_files:
        names = names.shard(pipelines, pipeline_id)
    if shuffle and not has_subsets:
        names = names.shuffle(reader.filenames_shuffle_buffer_size, seed=seed)
    # Not in parallel: that would keep `read_block_length` records of every file in memory (0.8 GB
    # of COCO's), and reading is fast beside decoding.
    records = names.interleave(
        lambda name: tf.data.TFRecordDataset(name, buffer_size=_READ_BUFFER),
        cycle_length=max(1, min(reader.num_readers, len(files))),
        block_length=max(1, reader.read_block_length),
    )
    if not takes_whole_files:
        records = records.shard(pipelines, pipeline_id)
    if reader.sample_1_of_n_examples > 1:
        records = records.shard(reader.sample_1_of_n_examples, 0)
    if keep is not None:
        records = keep(records)
    if shuffle:
        records = records.shuffle(max(1, reader.shuffle_buffer_size), seed=seed)
    return records.repeat(num_epochs)


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
    seed: int,
    deterministic: bool,
) -> tf.data.Dataset:
    """Decodes, transforms and batches records."""
    decoder = ExampleDecoder(
        label_map=label_map.load(reader.label_map_path) if reader.label_map_path else None,
        mask_type=MASK_TYPES[reader.mask_type] if reader.load_instance_masks else None,
        num_keypoints=reader.num_keypoints,
        load_multiclass_scores=reader.load_multiclass_scores,
        on_unknown_texts=UnknownClassReport(reader.label_map_path).update,
    )

    def load(index: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        # The seed depends on nothing but the record's place in the stream, so the number of
        # threads does not matter.
        return transform(decoder(serialized), tf.stack([seed, index]))

    examples = records.enumerate().map(
        load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic
    )
    batches = pipeline.batch(examples, batch_size, drop_remainder=drop_remainder)
    batches = batches.map(_tell_dropped_objects())
    return batches.prefetch(max(0, reader.num_prefetch_batches))


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
        resizer=image_resizer_builder.build(config.image_resizer),
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
    if not reader.tf_record_input_reader.input_path:
        raise ValueError(f'{where}.tf_record_input_reader.input_path is not set.')


def _matching_files(pattern: str, where: str) -> list[str]:
    files = sorted(tf.io.gfile.glob(pattern))
    if not files:
        raise ValueError(
            f'{where}.tf_record_input_reader.input_path matches no file. Received: {pattern!r}.'
        )
    return files


def _example_seed(seed: int | None, input_context: tf.distribute.InputContext | None) -> int:
    """The first half of every record's seed: a drawn one without `seed`, one an input pipeline."""
    if seed is None:
        seed = secrets.randbits(31)
    return seed + (input_context.input_pipeline_id if input_context else 0)
