"""Config changes since the last start of a training, and changes that prevent resuming."""

import logging
import os
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from object_detection.config import families, reader, walk
from object_detection.data import label_map
from object_detection.errors import ConfigError, format_list
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import label_map_rules

# Files in model_dir: the config and the classes of the last start. Users keep label maps of their
# own there, as label_map.pbtxt.
CONFIG_FILE_NAME = 'resolved_pipeline.config'
LABEL_MAP_FILE_NAME = 'resolved_label_map.pbtxt'

# Maximum number of changes in the log message.
_MAX_FIELDS = 12
_ABSENT = 'not set'
# Fields of `eval_config` that do not change the metric of the best model; `metrics_set` determines
# its name, which is compared.
_NOT_MEASURED = (
    'metrics_set',
    'batch_size',
    'num_visualizations',
    'num_examples',
    'eval_interval_secs',
    'max_evals',
    'save_graph',
    'visualization_export_dir',
    'eval_master',
    'export_path',
    'min_score_threshold',
    'max_num_boxes_to_visualize',
    'skip_scores',
    'skip_labels',
    'visualize_groundtruth_boxes',
    'groundtruth_box_visualization_color',
    'keep_image_id_for_visualization_export',
    'retain_original_images',
    'retain_original_image_additional_channels',
    'include_metrics_per_category',
    'all_metrics_per_category',
    'keypoint_edge',
    'best_checkpoint',
    'early_stopping',
    'async_evaluation',
)

_logger = logging.getLogger(__name__)


def check(pipeline: TrainEvalPipelineConfig, directory: str) -> None:
    """Checks that the weights in `directory` are for the classes of the config.

    Args:
      pipeline: config of the training to resume.
      directory: its model_dir; files that an earlier version did not write are not compared.

    Raises:
      ConfigError: if the config has another number of classes, or other classes for the same
        ids.
    """
    problem = _class_count(pipeline, directory) or _class_names(pipeline, directory)
    if problem:
        raise ConfigError(
            f'{problem} Use the earlier classes; or another model_dir, with {directory} as '
            'train_config.fine_tune_checkpoint, to train on from these weights.'
        )


def log_changes(pipeline: TrainEvalPipelineConfig, directory: str) -> None:
    """Logs which fields differ from those of the last start, if any.

    Args:
      pipeline: the config of this start.
      directory: the model_dir; the config of this start must not have been written there yet.
    """
    before = _read_config(directory)
    found = list(changes(before, pipeline)) if before is not None else []
    if not found:
        return
    _logger.warning('changed since the last start: %s', format_list(found, _MAX_FIELDS, '; '))


def changes(before: Message, now: Message) -> Iterator[str]:
    """Yields e.g. 'train_config.batch_size: 2 -> 4' for each field that differs."""
    old, new = _values(before), _values(now)
    for path in dict.fromkeys([*old, *new]):
        if old.get(path, _ABSENT) != new.get(path, _ABSENT):
            yield f'{path}: {old.get(path, _ABSENT)} -> {new.get(path, _ABSENT)}'


def evaluation_changes(pipeline: TrainEvalPipelineConfig, directory: str) -> list[str] | None:
    """Returns the settings of evaluation that differ from those of the training in a folder.

    Settings that change no metric are not compared.

    Args:
      pipeline: the config of an evaluation.
      directory: a model_dir.

    Returns:
      As `changes`; None if there is no training, or it keeps no best model of validation data.
    """
    training = _read_config(directory)
    if training is None or not training.eval_input_reader:
        return None
    if not training.eval_config.best_checkpoint.keep:
        return None
    return list(changes(_measured(training), _measured(pipeline)))


def _measured(pipeline: TrainEvalPipelineConfig) -> TrainEvalPipelineConfig:
    """Returns the part of a config that the metric of its best model depends on."""
    choice = eval_config_rules.best_metric(pipeline)
    part = TrainEvalPipelineConfig(model=pipeline.model, eval_config=pipeline.eval_config)
    for name in _NOT_MEASURED:
        part.eval_config.ClearField(name)
    part.eval_config.best_checkpoint.metric = choice.metric
    part.eval_config.best_checkpoint.reader = choice.reader
    names = eval_config_rules.reader_names(pipeline)
    if choice.reader in names:
        data = pipeline.eval_input_reader[names.index(choice.reader)]
        source = data.WhichOneof('input_reader')
        if source is not None:
            getattr(part.eval_input_reader.add(), source).CopyFrom(getattr(data, source))
        part.eval_input_reader.add(sample_1_of_n_examples=data.sample_1_of_n_examples)
    return part


def write_classes(pipeline: TrainEvalPipelineConfig, directory: str) -> None:
    """Writes the classes that the model is trained on, under their ids, into `directory`."""
    path = pipeline.train_input_reader.label_map_path
    if path:
        text = str(label_map.parse(files.read_bytes(path), path))
        files.write_text(os.path.join(directory, LABEL_MAP_FILE_NAME), text)


def _class_count(pipeline: TrainEvalPipelineConfig, directory: str) -> str | None:
    before = _read_config(directory)
    family = families.name(pipeline.model)
    if before is None or family is None or families.name(before.model) != family:
        return None
    then, now = (families.num_classes(each.model) for each in (before, pipeline))
    if then == now:
        return None
    field = f'{families.path(pipeline.model)}.num_classes'
    return f'{field} is {now}, and {then} in the training of {directory}.'


def _class_names(pipeline: TrainEvalPipelineConfig, directory: str) -> str | None:
    earlier = os.path.join(directory, LABEL_MAP_FILE_NAME)
    path = pipeline.train_input_reader.label_map_path
    if not path or not os.path.exists(earlier):
        return None
    try:
        now = label_map.load(path)
    except ValueError:  # The rules of the config report it, with all other problems.
        return None
    differing = label_map.differing_ids(label_map.load(earlier), now)
    if not differing:
        return None
    return (
        f'train_input_reader.label_map_path ({path}): expected the classes that {earlier} has from '
        f'the last start. Received: {label_map_rules.describe(differing)}. If these are new names '
        f'of the same classes, delete {earlier}.'
    )


def _read_config(directory: str) -> TrainEvalPipelineConfig | None:
    path = os.path.join(directory, CONFIG_FILE_NAME)
    try:
        return reader.read_pipeline(path) if os.path.exists(path) else None
    except ConfigError:  # A file for people, who may have changed it.
        return None


def _values(message: Message) -> dict[str, Any]:
    """Returns path -> value, as written in a config, of each set field that is no message."""
    found = {}
    for each in walk.set_fields(message):
        if isinstance(each.value, Message):
            continue
        value = each.value
        if each.field.enum_type is not None:
            value = each.field.enum_type.values_by_number[value].name
        found[each.path] = f'{value:g}' if isinstance(value, float) else str(value)
    return found


def label_maps(
    path: str, checkpoint: str, config_path: str = '', *, of_model: bool = False
) -> Iterator[str]:
    """Yields where the label map of a trained model may be, first the path that its config names.

    Paths of configs are relative to the folder of a command; the training stores its label map in
    its `model_dir`.

    Args:
      path: `label_map_path` of the config.
      checkpoint: a `model_dir`, a folder such as best/ of it, or a prefix in one of these; '' for
        none.
      config_path: path of the config; '' if it is not known.
      of_model: whether the classes of the model are wanted, not those of data: then what the
        training stored is before a relative path, which other projects have, too.
    """
    stored = []
    if checkpoint:
        folder = checkpoint if os.path.isdir(checkpoint) else os.path.dirname(checkpoint)
        folders = (folder, os.path.dirname(os.path.abspath(folder)))
        stored = [os.path.join(each, LABEL_MAP_FILE_NAME) for each in folders]
    is_relative = not (os.path.isabs(path) or '://' in path)
    yield from [*stored, path] if of_model and is_relative else [path, *stored]
    if config_path:
        yield os.path.join(os.path.dirname(config_path), path)
