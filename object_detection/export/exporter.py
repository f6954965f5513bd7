"""Exports a config and a checkpoint as a SavedModel, or as files of other formats."""

import functools
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders.input_readers import channels
from object_detection.errors import ConfigError
from object_detection.export import model_card, saved_model, verification
from object_detection.export.formats import formats
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.meta_architectures import detector as detector_builder
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import image_channels
from object_detection.models import precision as precisions
from object_detection.protos import pipeline_pb2
from object_detection.resizers.value_range import ValueRange
from object_detection.runtime import class_names, description, input_types
from object_detection.runtime.images import read_image
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.runtime.side_inputs import GivenSideInput
from object_detection.system import extras, publishing
from object_detection.training.evaluation import best_checkpoint, results
from object_detection.weights import checkpoints, restore

_logger = logging.getLogger(__name__)


def load_detector(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    precision: str | None = None,
    *,
    only_rgb: bool = True,
) -> DetectionModel:
    """Builds a detector for inference and restores it.

    The weights are the moving averages, if the training maintained them.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a folder, whose newest checkpoint is restored, or the prefix of one checkpoint; of
        this toolkit or of the TensorFlow Object Detection API; or a file of another system.
      precision: the precision in which it computes; None takes the config's.
      only_rgb: whether images of other channels than red, green and blue are refused, and not only
        those of several files.

    Raises:
      CheckpointError: if there is none, or it is of another model.
      ConfigError: if its images are refused.
    """
    reader = pipeline.train_input_reader
    if reader.num_additional_channels:
        raise ConfigError(
            'train_input_reader.num_additional_channels: expected 0 for exports and `tfod '
            f'predict`, which take one file an image. Received: {reader.num_additional_channels}.'
        )
    if only_rgb and channels.of_reader(reader) != image_channels.RGB:
        raise ConfigError(
            'train_input_reader.num_channels: expected 3 for exports, which take no others; `tfod '
            'predict` takes them with the checkpoint, and image_resizer has convert_to_grayscale '
            f'for models of grey images. Received: {channels.of_reader(reader)}.'
        )
    prefix = checkpoints.find(checkpoint)
    detector = detector_builder.build(
        pipeline, is_training=False, precision=precision, has_penalty=False
    )
    restore.restore_exactly(
        detector, prefix, averages=pipeline.train_config.optimizer.use_moving_average
    )
    return detector


class Exported(NamedTuple):
    """What `export` has done.

    Attributes:
      precision: the precision in which the export computes.
      comparison: the comparison with the model in process; None without images.
    """

    precision: str
    comparison: verification.Comparison | None


def export(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    *,
    input_type: str = input_types.IMAGE_TENSOR,
    precision: str | None = None,
    label_map_path: str | None = None,
    config_path: str = '',
    given_side_inputs: Sequence[GivenSideInput] | None = None,
    constant_weights: bool = False,
    images: Sequence[os.PathLike] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Exports a checkpoint as `saved_model/`, with `checkpoint/ckpt-0` and `pipeline.config`.

    They get a model card, see `model_card`, which has the speed if images are compared.

    The model computes in the precision of the config, or in `precision`, which is then written
    to the exported `pipeline.config`; types of inputs and outputs do not depend on
    it.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a directory or a prefix.
      output_directory: created; an earlier export there is replaced.
      input_type: one of `input_types.INPUT_TYPES`.
      precision: a name that `precision.canonical` knows; None takes the config's.
      label_map_path: label map with the class names that the SavedModel holds; None takes the label
        map of the config's input readers, or what `class_names.read_text` finds in its place, and
        exports no names if there is none.
      config_path: where the config was read.
      given_side_inputs: side inputs of the signature; None takes those of the detector.
      constant_weights: see `saved_model.ServedDetector`.
      images: image files on which the export is compared with the model in process; none compares
        nothing.
      progress: called before each image with the number of compared images and of all.

    Raises:
      CheckpointError: if there is no checkpoint, or it is of another model.
      UserError: if the detections are not those of the model, which leaves an earlier export as it
        is.
      ValueError: for an unknown `input_type`, or a `label_map_path` that cannot be read.
    """
    input_types.check(input_type)
    resolved = pipeline_pb2.TrainEvalPipelineConfig()
    resolved.CopyFrom(pipeline)
    chosen = precisions.write(resolved.train_config, precision)
    prefix = checkpoints.find(checkpoint)
    label_map_text = class_names.read_text(
        resolved, label_map_path, checkpoint=prefix, config_path=config_path
    )
    _logger.info('exporting %s; it computes in %s', describe(checkpoint, prefix), chosen)
    detector = load_detector(resolved, prefix, chosen)
    card = _card(resolved, prefix, label_map_text)
    comparison, seconds = None, []

    def verify(folder: pathlib.Path) -> None:
        nonlocal comparison
        with precisions.scope(chosen):
            exported, detect = SavedModelRuntime(folder), verification.in_process(detector)
            pixels = _read(images, detector.resizer.value_range, progress)
            comparison = verification.compare(exported, detect, pixels, seconds)
        comparison.raise_unless_it_agrees(f'--format {formats.SAVED_MODEL}')

    def describe_in(folder: pathlib.Path) -> str:
        size = _size(folder / formats.SAVED_MODEL)
        made = model_card.Exported(formats.SAVED_MODEL, chosen, size, seconds)
        model_card.write(output_directory, folder, card, made)
        return model_card.FILE_NAME

    saved_model.export(
        detector,
        output_directory,
        input_type=input_type,
        save_checkpoint=lambda directory: checkpoints.save_model(
            directory, detector.named_variables(), restore.read_step(prefix)
        ),
        pipeline_text=text_format.MessageToString(resolved),
        precision=chosen,
        label_map_text=label_map_text,
        given_side_inputs=given_side_inputs,
        constant_weights=constant_weights,
        advised_threshold=results.advised_threshold(card.evaluations),
        verify=verify if images else None,
        describe=describe_in,
    )
    return Exported(chosen, comparison)


def _card(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, prefix: str, label_map_text: str | None
) -> model_card.Model:
    step = restore.read_step(prefix)
    return model_card.Model(
        pipeline,
        prefix,
        step,
        class_names.parse(label_map_text).names,
        results.of_checkpoint(prefix, step),
    )


def _size(folder: pathlib.Path) -> int:
    """Returns the bytes of all files in a folder."""
    return sum(each.stat().st_size for each in folder.rglob('*') if each.is_file())


def _read(
    paths: Sequence[os.PathLike],
    value_range: ValueRange | None,
    progress: Callable[[int, int], None] = lambda index, count: None,
) -> Iterator[np.ndarray]:
    for index, path in enumerate(paths):
        progress(index, len(paths))
        yield read_image(path, value_range=value_range)[0]


class WrittenFile(NamedTuple):
    """A model file of `export_files`.

    Attributes:
      format_name: the format.
      path: the file, in its final place.
      megabytes: the size of all its files, in 10^6 bytes.
      comparison: the comparison with the model in process; None without images.
    """

    format_name: str
    path: pathlib.Path
    megabytes: float
    comparison: verification.Comparison | verification.Resemblance | None


def export_files(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    names: Sequence[str],
    *,
    options: FormatOptions,
    precision: str | None = None,
    label_map_path: str | None = None,
    config_path: str = '',
    images: Sequence[os.PathLike] = (),
) -> Iterator[WrittenFile]:
    """Exports a checkpoint as files of other formats than SavedModel, one after the other.

    Each is written to a scratch folder in `output_directory`, described, compared with the model in
    process on the images, and moved into place when its detections agree.

    Args:
      pipeline, checkpoint, precision, label_map_path, config_path: as for `export`.
      output_directory: created; earlier files of the formats there are replaced.
      names: keys of `formats.EXPORT_FORMATS`.
      options: options of the formats.
      images: image files to compare on; none compares nothing.

    Yields:
      Each file, after it was moved.

    Raises:
      UserError: if a format cannot express the model, before anything is written; or a file's
        detections are not those of the model, which leaves an earlier export as it is.
    """
    rows = {name: formats.EXPORT_FORMATS[name] for name in names}
    for name, row in rows.items():
        packages = (*row.write_packages, *(row.load_packages if images else ()))
        extras.check_packages(f'--format {name}', packages, row.extra)
    resolved = pipeline_pb2.TrainEvalPipelineConfig()
    resolved.CopyFrom(pipeline)
    chosen = precisions.write(resolved.train_config, precision)
    prefix = checkpoints.find(checkpoint)
    label_map_text = class_names.read_text(
        resolved, label_map_path, checkpoint=prefix, config_path=config_path
    )
    detector = load_detector(resolved, prefix, chosen)
    card = _card(resolved, prefix, label_map_text)
    advised = results.advised_threshold(card.evaluations)
    source = ExportSource(detector, resolved, chosen, label_map_text, advised)
    for row in rows.values():
        row.module().check(source, options)
    pixels = list(_read(images, detector.resizer.value_range))

    @functools.cache
    def expected(sees_padding: bool) -> list[tuple[np.ndarray, dict[str, tf.Tensor]]]:
        with precisions.scope(chosen):
            detect = verification.in_process(detector, sees_padding=sees_padding)
            return [(each, detect(tf.constant(each[np.newaxis]))) for each in pixels]

    for name, row in rows.items():
        with publishing.open_draft(output_directory) as draft:
            path = draft.folder / row.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            described = row.module().write(source, path, options)
            description.path_beside(path).write_text(described.to_json(), encoding='utf-8')
            seconds: list[float] = []
            comparison = _compare(name, path, expected, seconds) if images else None
            size = _size(draft.folder)
            numbers = described.details.get(description.QUANTIZATION, described.precision)
            made = model_card.Exported(row.file_name, numbers, size, seconds)
            model_card.write(output_directory, draft.folder, card, made)
            written = [each for each in draft.folder.rglob('*') if each.is_file()]
            # The description marks completion.
            written.sort(key=description.path_beside(path).__eq__)
            draft.publish([each.relative_to(draft.folder) for each in written])
        yield WrittenFile(
            name, pathlib.Path(output_directory, row.file_name), size / 1e6, comparison
        )


def _compare(
    name: str,
    path: pathlib.Path,
    expected: Callable[[bool], Sequence[tuple[np.ndarray, dict[str, tf.Tensor]]]],
    seconds: list[float],
) -> verification.Comparison | verification.Resemblance:
    """Compares a file with what the model found; raises UserError unless they agree.

    Both see the same: where the file sees padding as a part of the image, the model does, and what
    it finds there is left out as for the file.
    """
    exported = formats.load(path)
    found = [
        (image, exported.in_true_images(outputs, image.shape[:2]))
        for image, outputs in expected(exported.sees_padding)
    ]
    quantization = exported.description.details.get(description.QUANTIZATION, formats.FLOAT32)
    is_exact = quantization == formats.FLOAT32
    compare = verification.compare_with if is_exact else verification.resemble
    comparison = compare(exported, found, seconds)
    comparison.raise_unless_it_agrees(f'--format {name}')
    return comparison


def describe(checkpoint: str, prefix: str) -> str:
    """Describes the chosen checkpoint, and names the best one if that is another.

    Args:
      checkpoint: the requested folder or prefix.
      prefix: the checkpoint that `checkpoints.find` found for it.
    """
    text = f'{prefix} (step {restore.read_step(prefix)})'
    folder = os.path.join(checkpoint, best_checkpoint.FOLDER)
    kept = best_checkpoint.read(folder) if os.path.isdir(folder) else None
    if kept is None:
        return text
    return (
        f'{text}, the last one; the best by {kept["metric"]} ({kept["value"]:.4g} at step '
        f'{kept["step"]}) is in {folder}'
    )
