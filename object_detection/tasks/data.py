"""Data sets and configs: what `tfod convert` and `tfod config new` do."""

import dataclasses
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from object_detection.data.image_files import MAX_PIXELS
from object_detection.errors import OptionsError, UserError, expected, format_list
from object_detection.system import files, tensorflow_setup
from object_detection.tasks.options import PathLike, check_choice, check_positive, typed

if TYPE_CHECKING:
    from object_detection.data.formats.source import Found, Source
    from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

# Usual names of TFRecord files.
_RECORDS = re.compile(r'\.(tf)?records?$|-\d{5}-of-\d{5}$')
# Values of options of `new_config`.
DEVICES, MODELS, TASKS = ('cpu', 'gpu', 'mobile'), ('detr',), ('boxes', 'masks')


class Conversion(NamedTuple):
    """A data set that `convert` has written.

    Attributes:
      prefix: beginning of the names of its files, for `new_config`.
      label_map: path of its label map.
      report: what was converted and what could not be, as in PREFIX.report.json.
    """

    prefix: str
    label_map: str
    report: dict[str, Any]


def convert(
    format: str,
    output: PathLike,
    *,
    label_map: PathLike = '',
    drop_empty: bool = False,
    max_pixels: int = MAX_PIXELS,
    shards: int | None = None,
    strict: bool = False,
    workers: int = 1,
    runner: str = '',
    beam_options: Sequence[str] = (),
    **options: Any,
) -> list[Conversion]:
    """Converts a data set to TFRecords, as `tfod convert FORMAT` does.

    `convert('auto', 'data/records', folder='data')` finds out the format, and converts each split;
    `convert('coco', 'data/train', images='photos', annotations='instances.json')` one set.

    Args:
      format: name of the format, such as 'coco', 'voc' or 'yolo', or 'auto'.
      output: beginning of the names of the files to write, with their folder.
      label_map: label map that numbers the categories by name; '' numbers them.
      drop_empty: leaves out images without objects.
      max_pixels: leaves out larger images; 0 sets no limit.
      shards: number of TFRecord files; None takes one for each 100 images, up to 10.
      strict: writes nothing if there is any problem.
      workers: local processes; each writes whole shards.
      runner, beam_options: another Beam runner, and its options.
      **options: those of the format, as `tfod convert FORMAT --help` lists them; `folder` of auto.

    Returns:
      The data sets: one, or those of the splits that 'auto' has found.

    Raises:
      UserError: if an option or the data cannot be used; a split that 'auto' has converted stays.
    """
    output = os.fspath(output)
    common = {
        'label_map_file': os.fspath(label_map),
        'drop_empty': drop_empty,
        'max_pixels': max_pixels or sys.maxsize,
    }
    how = {'shards': shards, 'strict': strict, 'workers': workers}
    how |= {'runner': runner, 'beam_options': tuple(beam_options)}
    if format != 'auto':
        return [convert_source(_source_of(format, options, common), output, **how)]
    if [*options] != ['folder']:
        raise expected('convert of auto', 'the option folder', ', '.join(options) or 'none')
    found = detect_sets(os.fspath(options['folder']), output, common)
    if len(found) > 1:
        raise expected('convert', f'one of {", ".join(found)}, which the folder has', 'auto')
    [sets] = found.values()
    return [convert_source(each.source, prefix_of(output, each), **how) for each in sets]


def convert_source(
    source: 'Source',
    output: str,
    *,
    shards: int | None = None,
    **how: Any,
) -> Conversion:
    """Converts a data set; arguments as for `conversion.convert`."""
    # Beam takes a second to import, and warns that clients of Google's services are not installed.
    logging.disable(logging.WARNING)
    from object_detection.dataset_tools.converters import conversion

    logging.disable(logging.NOTSET)
    report = conversion.convert(source, output, shards, **how)
    return Conversion(output, label_map_of(output), report)


def detect_sets(folder: str, output: str, common: Mapping[str, Any]) -> 'dict[str, list[Found]]':
    """Returns the data sets of a folder by their format, in the order of their conversion.

    Those whose classes would have numbers of their own share the label map of the first one, which
    is the one to train on.

    Args:
      folder: where they are.
      output: prefix of the outputs, see `prefix_of`.
      common: field of all sources -> value.

    Raises:
      UserError: if there is none.
    """
    from object_detection.data.file_access import LocalFiles
    from object_detection.data.formats import formats

    found = formats.detect(folder, LocalFiles())
    if not found:
        raise UserError(_nothing_found(folder, LocalFiles().list(folder, recursive=True)))
    return {name: _with_shared_classes(name, sets, output, common) for name, sets in found.items()}


def prefix_of(output: str, found: 'Found') -> str:
    """Returns the beginning of the names of the files of a set that `detect_sets` has found."""
    return f'{output}_{found.name}' if found.name else output


def label_map_of(prefix: str) -> str:
    """Returns the path of the label map of a set."""
    return f'{prefix}_label_map.pbtxt'


def _with_shared_classes(
    name: str, sets: 'list[Found]', output: str, common: Mapping[str, Any]
) -> 'list[Found]':
    from object_detection.data.formats import formats
    from object_detection.data.formats.source import SPLITS

    sets = [item._replace(source=dataclasses.replace(item.source, **common)) for item in sets]
    fields = formats.fields(type(sets[0].source))
    place = next(field.name for field in fields if field.metadata['required'])
    places = {getattr(item.source, place) for item in sets}
    numbers_used = formats.ANNOTATION_FORMATS[name].numbers_used
    if not numbers_used or common['label_map_file'] or len(places) == 1:
        return sets
    rank = {split: index for index, split in enumerate(SPLITS)}
    first, *others = sorted(sets, key=lambda item: rank.get(item.name, len(rank)))
    path = label_map_of(prefix_of(output, first))
    return [
        first,
        *(
            item._replace(source=dataclasses.replace(item.source, label_map_file=path))
            for item in others
        ),
    ]


def _nothing_found(folder: str, names: Sequence[str]) -> str:
    """Returns why a folder with files of these names cannot be converted."""
    if not os.path.exists(folder):
        return f'{folder}: there is no such folder.'
    from object_detection.data.formats.formats import ANNOTATION_FORMATS

    if records := [name for name in names if _RECORDS.search(name)]:
        return (
            f'{folder} has TFRecords, which need no conversion: {format_list(records)}. '
            '`tfod data check FILES` says what is in them.'
        )
    titles = '; '.join(row.title for row in ANNOTATION_FORMATS.values())
    return f'{folder} has no format that is known here: {titles}.'


def _source_of(name: str, options: Mapping[str, Any], common: Mapping[str, Any]) -> 'Source':
    """Returns a data set of a format by the options of its command."""
    from object_detection.data.formats import formats

    check_choice('convert', name, ('auto', *formats.ANNOTATION_FORMATS))
    kind = formats.ANNOTATION_FORMATS[name].source
    named = {field.metadata['flag'] or field.name: field for field in formats.fields(kind)}
    for each in options:
        check_choice(f'convert of {name}', each, named)
    for each, field in named.items():
        if field.metadata['required'] and each not in options:
            wanted = f'the option {each} (all: {", ".join(named)})'
            raise expected(f'convert of {name}', wanted, ', '.join(options) or 'none')
    values = {named[key].name: typed(key, named[key].type, v) for key, v in options.items()}
    return kind(**values, **common)


class NewConfig(NamedTuple):
    """A config that `new_config` has written.

    Attributes:
      path: its file, for `train`.
      pipeline: the config.
      reasons: path of a field -> why it has its value.
      lines: the same for a person, with what was measured of the data.
    """

    path: str
    pipeline: 'TrainEvalPipelineConfig'
    reasons: dict[str, str]
    lines: list[str]


def new_config(
    data: PathLike,
    output: PathLike = 'pipeline.config',
    *,
    validation: PathLike = '',
    label_map: PathLike = '',
    device: str = 'cpu',
    model: str | None = None,
    task: str | None = None,
    backbone: str = '',
    weights: PathLike = '',
    num_train_steps: int | None = None,
    epochs: float | None = None,
    force: bool = False,
) -> NewConfig:
    """Writes a config that fits converted data, as `tfod config new` does.

    Args:
      data: the training records: prefix of `convert`.
      output: the file to write.
      validation: the validation records; '' takes those named as `data`, with val or valid for
        train, if there are any.
      label_map: label map of the data; '' is PREFIX_label_map.pbtxt.
      device: what the model is trained on, 'cpu' or 'gpu', or 'mobile' for an SSD for phones.
      model: 'detr' for an RT-DETR; None takes one that suits the device.
      task: 'boxes' or 'masks'; None takes masks where the records have masks.
      backbone: network of the feature extractor, such as 'keras:ConvNeXtTiny'; '' chooses one.
      weights: weights to begin with, as --weights of the command.
      num_train_steps: steps of the training; None chooses by the number of images.
      epochs: passes over the data, in place of the steps.
      force: replaces the file if there is one.

    Raises:
      OptionsError: if options contradict each other.
      UserError: if there is such a file already, or an option or the data cannot be used.
    """
    for name, value, choices in (
        ('--for', device, DEVICES),
        ('--model', model, MODELS),
        ('--task', task, TASKS),
    ):
        if value is not None:
            check_choice(name, value, choices)
    if num_train_steps and epochs:
        raise OptionsError('--epochs: not with --num_train_steps.')
    check_positive(num_train_steps=num_train_steps, epochs=epochs)
    data, output = os.fspath(data), os.fspath(output)
    if os.path.exists(output) and not force:
        raise UserError(f'{output} exists; give another --output, or --force.')
    tensorflow_setup.import_tensorflow()
    from object_detection.dataset_tools import (
        data_statistics,
        starter,
        starter_parts,
        starter_weights,
    )
    from object_detection.validation.validate import PURPOSES, validate

    found = starter_weights.find(
        os.fspath(weights),
        is_mobile=device == starter_parts.MOBILE,
        is_transformer=model == starter_parts.TRANSFORMER,
        backbone=backbone,
    )
    validation = os.fspath(validation) or starter.validation_prefix(data)
    measured = data_statistics.measure(data, os.fspath(label_map))
    made = starter.make(
        measured,
        data_statistics.measure(validation, measured.label_map_path) if validation else None,
        device=device,
        task=task or '',
        weights=found,
        backbone=backbone,
        model=model or '',
        num_steps=num_train_steps,
        epochs=epochs,
    )
    validate(made.pipeline, for_what=PURPOSES)
    files.write_text(output, starter.to_text(made, output))
    lines = starter.format_reasons(made, measured)
    return NewConfig(output, made.pipeline, dict(made.reasons), lines)
