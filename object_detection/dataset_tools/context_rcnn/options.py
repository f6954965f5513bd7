"""The options of the jobs, in one table for the scripts and for `tfod context`.

This module imports nothing that is slow.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from object_detection.config.job_options import option
from object_detection.core import tf_example_keys as keys
from object_detection.errors import UserError, expected

TIME_HORIZONS = ('year', 'month', 'week', 'day', 'hour', 'minute')
FINAL_BOX_FEATURES, RPN_BOX_FEATURES = 'final_box_features', 'rpn_box_features'
EMBEDDING_TYPES = (FINAL_BOX_FEATURES, RPN_BOX_FEATURES)
TF_EXAMPLE, TF_SEQUENCE_EXAMPLE = 'tf_example', 'tf_sequence_example'
ALL_IMAGES = 'All'

_TRUTHS = {'true': True, '1': True, 'false': False, '0': False}
_WORKERS = 'Local processes.'
_RUNNER = 'Beam runner; by default the job runs here.'
_SHARDS = 'Number of output files; 0 for as many as there are input files.'
_BATCH = 'Images that the model processes at once.'
_MODEL = 'SavedModel that was exported with --input_type tf_example.'


def _flag(
    default: Any,
    help_text: str,
    choices: tuple[str, ...] = (),
    limits: tuple[float, float] | None = None,
    *,
    is_required: bool = False,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Returns a field that is a flag; `limits` are its smallest and its largest number."""
    field = option(default, help_text, choices, section='', aliases=aliases)
    further = {'limits': limits, 'is_required': is_required}
    return dataclasses.field(default=default, metadata={**field.metadata, **further})


def _count(default: int | None, help_text: str, least: int = 1, **others: Any) -> Any:
    return _flag(default, help_text, (), (least, 2**31 - 1), **others)


def _text(default: str, help_text: str) -> Any:
    """Returns a flag that must be given, or has a default."""
    return _flag(default, help_text, is_required=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of all jobs."""

    workers: int = _count(1, _WORKERS, aliases=('num_workers',))
    runner: str = _flag('', _RUNNER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CameraTrapsOptions(JobOptions):
    """Options of the job that makes records of a data set in the format COCO Camera Traps."""

    image_directory: str = _text('', 'Folder of the images.')
    output_tfrecord_prefix: str = _text('', 'Beginning of the names of the files to write.')
    input_annotations_file: str = _text('', 'JSON file in the format COCO Camera Traps.')
    num_images_per_shard: int = _count(200, 'Images in each output file.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectionOptions(JobOptions):
    """Options of the job that adds boxes to images with labels of the whole image."""

    detection_input_tfrecord: str = _text('', 'Pattern of the input files.')
    detection_output_tfrecord: str = _text('', 'Beginning of the names of the files to write.')
    detection_model_dir: str = _text('', _MODEL)
    confidence_threshold: float = _flag(0.9, 'Lowest score of a box that is added.', (), (0.0, 1.0))
    num_shards: int = _count(0, _SHARDS, 0)
    batch_size: int = _count(4, _BATCH)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(JobOptions):
    """Options of the job that adds embeddings of the objects of each image."""

    embedding_input_tfrecord: str = _text('', 'Pattern of the input files.')
    embedding_output_tfrecord: str = _text('', 'Beginning of the names of the files to write.')
    embedding_model_dir: str = _text('', _MODEL)
    top_k_embedding_count: int = _count(1, 'Embeddings of the detections with the best scores.', 0)
    bottom_k_embedding_count: int = _count(0, 'Further ones, of the lowest scores.', 0)
    num_shards: int = _count(0, _SHARDS, 0)
    embedding_type: str = _flag(FINAL_BOX_FEATURES, 'Output that is embedded.', EMBEDDING_TYPES)
    batch_size: int = _count(4, _BATCH)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextOptions(JobOptions):
    """Options of the job that adds the embeddings of other images to each image."""

    input_tfrecord: str = _text('', 'Pattern of the input files.')
    output_tfrecord: str = _text('', 'Beginning of the names of the files to write.')
    sequence_key: str = _text(keys.LOCATION, 'Feature whose value images of a group share.')
    context_feature_length: int = _count(
        2057, 'Length of an embedding, for groups of images without any.'
    )
    time_horizon: str | None = _flag(
        None, 'Divides groups by the time of the images.', TIME_HORIZONS
    )
    subsample_context_features_rate: int = _count(
        0, 'Context has every n-th image of a group only; 0 for all.', 0
    )
    reduce_image_size: bool = _flag(True, 'Make images smaller that are too large.')
    max_image_dimension: int = _count(1024, 'Longest side of an image in pixels, if reduced.')
    add_context_features: bool = _flag(True, 'Write the context features.')
    sorted_image_ids: bool = _flag(
        True, 'Order images of a location by their source ids; else by time.'
    )
    image_ids_to_keep: str = _text(
        ALL_IMAGES, 'JSON file with a list of the source ids of images to write, or All.'
    )
    keep_context_features_image_id_list: bool = _flag(
        False, 'Write the source id of each context feature.'
    )
    keep_only_positives: bool = _flag(False, 'Context has embeddings of good scores only.')
    context_features_score_threshold: float = _flag(
        0.7, 'Lowest score of keep_only_positives.', (), (0.0, 1.0)
    )
    keep_only_positives_gt: bool = _flag(False, 'Context has images with annotated boxes only.')
    max_num_elements_in_context_features: int = _count(
        2000, 'Largest number of context features; larger groups are split.'
    )
    output_type: str = _flag(TF_EXAMPLE, 'Kind of records.', (TF_EXAMPLE, TF_SEQUENCE_EXAMPLE))
    max_clip_length: int | None = _count(None, 'Most frames of a tf.SequenceExample.')
    num_shards: int = _count(0, _SHARDS, 0)
    pad_context_features: bool = _flag(
        False, 'Fill up the context features with zeros to the largest number.'
    )


def check(options: JobOptions) -> None:
    """Checks the values of options.

    Raises:
      UserError: which names the first flag that cannot be used.
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        choices = field.metadata['choices']
        if field.metadata['is_required'] and not value:
            raise UserError(f'--{field.name}: expected a value. {field.metadata["help"]}')
        if choices and value is not None and value not in choices:
            raise expected(f'--{field.name}', f'one of {", ".join(choices)}', repr(value))
        limits = field.metadata['limits']
        if limits and value is not None and not limits[0] <= value <= limits[1]:
            raise expected(f'--{field.name}', f'a number from {limits[0]} to {limits[1]}', value)


def join_booleans(arguments: Iterable[str], kind: type) -> list[str]:
    """Returns a command line in which `--name False` and `--name=false` are `--noname`.

    Args:
      arguments: arguments without the name of the program.
      kind: the class of the options; only its booleans are concerned.

    Raises:
      UserError: which names a boolean flag with another value.
    """
    names = {field.name for field in dataclasses.fields(kind) if field.type is bool}
    rest, joined = list(arguments), []
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.partition('=')
        name = flag.lstrip('-')
        if not flag.startswith('-') or name not in names:
            joined.append(argument)
            continue
        if not equals and rest and not rest[0].startswith('-'):
            equals, value = '=', rest.pop(0)
        if equals and value.lower() not in _TRUTHS:
            raise UserError(f'--{name}: expected true or false. Received: {value!r}.')
        is_true = not equals or _TRUTHS[value.lower()]
        joined.append(f'--{name}' if is_true else f'--no{name}')
    return joined


def names(kind: type) -> Sequence[str]:
    """Returns the names of the flags of a job."""
    return [field.name for field in dataclasses.fields(kind)]
