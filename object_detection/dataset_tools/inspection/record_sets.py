"""Finds the records that a user names, by files or by a config, and what they have to fit."""

import os
from collections.abc import Iterator, Sequence

from object_detection.config import families, synthetic_data
from object_detection.data import label_map
from object_detection.data.record_checks import Expectations
from object_detection.dataset_tools.inspection.check_job import RecordSet
from object_detection.errors import UserError, expected
from object_detection.protos import input_reader_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.resizers.value_range import ValueRange
from object_detection.system import files

CONFIG_ENDINGS = ('.config', '.pbtxt')
_MASK_TYPES = {input_reader_pb2.PNG_MASKS: 'png'}


class LabelMapError(UserError):
    """A label map that a training would refuse."""


def find_files(patterns: Sequence[str]) -> list[str]:
    """Returns the files that match some patterns, each once.

    Raises:
      UserError: if a pattern matches no file.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        names = [name for name in files.matches(pattern) if not os.path.isdir(name)]
        if not names:
            raise expected(pattern, 'a TFRecord file, or a pattern that matches some')
        found.update(dict.fromkeys(names))
    return list(found)


def of_files(patterns: Sequence[str], label_map_path: str, *, decodes: bool) -> RecordSet:
    """Returns the records of files; their masks are checked if they are PNG files.

    Args:
      patterns: names or patterns of TFRecord files.
      label_map_path: their label map; '' accepts all classes.
      decodes: see `Expectations`.

    Raises:
      UserError: if there are no files.
      LabelMapError: if the label map cannot be used.
    """
    names = find_files(patterns)
    labels = _load(label_map_path, '--label_map')
    expectations = Expectations(
        text_to_id=labels and labels.text_to_id, mask_type='png', decodes=decodes
    )
    return RecordSet('files', names, expectations, _class_names(labels), label_map_path)


def of_config(pipeline: TrainEvalPipelineConfig, *, decodes: bool) -> Iterator[RecordSet]:
    """Yields the records of each input reader of a config.

    Raises:
      UserError: if a reader has no files, or reads something else than tf.Examples.
      LabelMapError: if a label map cannot be used.
    """
    readers = [('train_input_reader', pipeline.train_input_reader)]
    readers += [
        (f'eval_input_reader[{index}]', reader)
        for index, reader in enumerate(pipeline.eval_input_reader)
    ]
    for path, reader in readers:
        if reader.WhichOneof('input_reader') is None or synthetic_data.is_synthetic(reader):
            continue
        yield _of_reader(pipeline, reader, path, decodes)


def _of_reader(
    pipeline: TrainEvalPipelineConfig, reader: InputReader, path: str, decodes: bool
) -> RecordSet:
    kind = reader.WhichOneof('input_reader')
    if kind != 'tf_record_input_reader':
        raise UserError(
            f'{path}.{kind}: `tfod data check` reads TFRecord files (tf_record_input_reader). '
            'Convert the data with `tfod convert`, which also reports what cannot be used.'
        )
    if reader.input_type == input_reader_pb2.TF_SEQUENCE_EXAMPLE:
        what = 'TF_EXAMPLE, as records of videos are not checked'
        raise expected(f'{path}.input_type', what, 'TF_SEQUENCE_EXAMPLE')
    try:
        names = find_files(reader.tf_record_input_reader.input_path)
    except UserError as error:
        raise UserError(f'{path}.tf_record_input_reader.input_path: {error}') from None
    labels = _load(reader.label_map_path, f'{path}.label_map_path')
    is_training, model = path == 'train_input_reader', families.options(pipeline.model)
    expectations = Expectations(
        text_to_id=labels and labels.text_to_id,
        num_classes=families.num_classes(pipeline.model),
        mask_type=_MASK_TYPES.get(reader.mask_type, 'numerical')
        if reader.load_instance_masks
        else '',
        max_pixels=reader.max_image_pixels,
        max_objects=reader.max_number_of_boxes if is_training else 0,
        decodes=decodes,
        value_range=None if model is None else ValueRange.of(model.image_resizer),
    )
    repeats = is_training and reader.HasField('repeat_factor_sampling')
    threshold = reader.repeat_factor_sampling.threshold if repeats else 0.0
    names_of_classes = _class_names(labels)
    return RecordSet(path, names, expectations, names_of_classes, reader.label_map_path, threshold)


def _load(path: str, name: str) -> label_map.LabelMap | None:
    if not path:
        return None
    try:
        return label_map.load(path)
    except ValueError as error:
        raise LabelMapError(f'{name}: {error}') from error


def _class_names(labels: label_map.LabelMap | None) -> dict[int, str]:
    return labels.names if labels else {}
