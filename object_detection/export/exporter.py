"""Exports a config and a checkpoint as a SavedModel, or as files of other formats."""

import logging
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import detector_builder
from object_detection.export import class_names, input_types, saved_model, verification
from object_detection.export.formats import description, formats
from object_detection.export.formats.source import ExportSource, FormatOptions
from object_detection.export.inference import SavedDetector, read_image
from object_detection.export.side_inputs import GivenSideInput
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import precision as precisions
from object_detection.protos import pipeline_pb2
from object_detection.system import files
from object_detection.training.evaluation import best_checkpoint
from object_detection.weights import checkpoints, restore

_logger = logging.getLogger(__name__)


def load_detector(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig, checkpoint: str, precision: str | None = None
) -> DetectionModel:
    """Builds a detector for inference and restores it.

    The weights are the moving averages, if the training maintained them.

    Args:
      pipeline: the config that the checkpoint was trained with.
      checkpoint: a folder, whose newest checkpoint is restored, or the prefix of one checkpoint; of
        this toolkit or of the TensorFlow Object Detection API.
      precision: the precision in which it computes; None takes the config's.

    Raises:
      CheckpointError: if there is none, or it is of another model.
    """
    prefix = checkpoints.find(checkpoint)
    detector = detector_builder.build(
        pipeline, is_training=False, precision=precision, has_penalty=False
    )
    restore.restore_exactly(
        detector, prefix, averages=pipeline.train_config.optimizer.use_moving_average
    )
    return detector


def export(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    *,
    input_type: str = input_types.IMAGE_TENSOR,
    precision: str | None = None,
    label_map_path: str | None = None,
    given_side_inputs: Sequence[GivenSideInput] | None = None,
) -> str:
    """Exports a checkpoint as `saved_model/`, with `checkpoint/ckpt-0` and `pipeline.config`.

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
        map of the config's input readers, and exports no names if it cannot be read.
      given_side_inputs: side inputs of the signature; None takes those of the detector.

    Returns:
      The precision.

    Raises:
      CheckpointError: if there is no checkpoint, or it is of another model.
      ValueError: for an unknown `input_type`, or a `label_map_path` that cannot be read.
    """
    input_types.check(input_type)
    resolved = pipeline_pb2.TrainEvalPipelineConfig()
    resolved.CopyFrom(pipeline)
    chosen = precisions.write(resolved.train_config, precision)
    label_map_text = class_names.read_text(resolved, label_map_path)
    prefix = checkpoints.find(checkpoint)
    _logger.info('exporting %s; it computes in %s', describe(checkpoint, prefix), chosen)
    detector = load_detector(resolved, prefix, chosen)
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
    )
    return chosen


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
    images: Sequence[os.PathLike] = (),
) -> Iterator[WrittenFile]:
    """Exports a checkpoint as files of other formats than SavedModel, one after the other.

    Each is written to a scratch folder in `output_directory`, described, compared with the model in
    process on the images, and moved into place when its detections agree.

    Args:
      pipeline, checkpoint, precision, label_map_path: as for `export`.
      output_directory: created; earlier files of the formats there are replaced.
      names: keys of `formats.FORMATS`.
      options: options of the formats.
      images: image files to compare on; none compares nothing.

    Yields:
      Each file, after it was moved.

    Raises:
      UserError: if a format cannot express the model, before anything is written; or a file's
        detections are not those of the model, which leaves an earlier export as it is.
    """
    rows = {name: formats.FORMATS[name] for name in names}
    for name, row in rows.items():
        packages = (*row.write_packages, *(row.load_packages if images else ()))
        row.check_packages(f'--format {name}', packages)
    resolved = pipeline_pb2.TrainEvalPipelineConfig()
    resolved.CopyFrom(pipeline)
    chosen = precisions.write(resolved.train_config, precision)
    label_map_text = class_names.read_text(resolved, label_map_path)
    detector = load_detector(resolved, checkpoint, chosen)
    source = ExportSource(detector, resolved, chosen, label_map_text)
    for row in rows.values():
        row.module().check(source, options)
    with precisions.scope(chosen):
        detect = verification.in_process(detector) if images else None
        pixels = [read_image(path)[0] for path in images]
        expected = [(each, detect(tf.constant(each[np.newaxis]))) for each in pixels]
    output = pathlib.Path(output_directory)
    output.mkdir(parents=True, exist_ok=True)
    for name, row in rows.items():
        with tempfile.TemporaryDirectory(prefix='.export-', dir=output) as scratch:
            draft, aside = pathlib.Path(scratch) / 'new', pathlib.Path(scratch) / 'old'
            aside.mkdir()
            path = draft / row.file_name
            path.parent.mkdir(parents=True)
            described = row.module().write(source, path, options)
            description.path_beside(path).write_text(described.to_json(), encoding='utf-8')
            comparison = _compare(name, path, expected) if images else None
            size = sum(each.stat().st_size for each in draft.rglob('*') if each.is_file())
            _move_into(output, draft, aside, last=description.path_beside(path))
        yield WrittenFile(name, output / row.file_name, size / 1e6, comparison)


def _move_into(
    output: pathlib.Path, draft: pathlib.Path, aside: pathlib.Path, last: pathlib.Path
) -> None:
    """Moves the files of `draft` to their places in `output`, `last` at the end.

    Earlier files in these places go to `aside`, and come back if a move fails.
    """
    written = sorted((each for each in draft.rglob('*') if each.is_file()), key=last.__eq__)
    names = [each.relative_to(draft) for each in written]
    for folder in {name.parent for name in names}:
        (output / folder).mkdir(exist_ok=True)
        (aside / folder).mkdir(exist_ok=True)
    old = [(output / name, aside / name) for name in reversed(names) if (output / name).exists()]
    files.move_all([*old, *((draft / name, output / name) for name in names)])


def _compare(
    name: str, path: pathlib.Path, expected: Sequence[tuple[np.ndarray, dict[str, tf.Tensor]]]
) -> verification.Comparison | verification.Resemblance:
    """Compares a file with what the model found; raises UserError unless they agree."""
    exported = formats.load(path)
    quantization = exported.description.details.get(description.QUANTIZATION, formats.FLOAT32)
    is_exact = quantization == formats.FLOAT32
    compare = verification.compare_with if is_exact else verification.resemble
    comparison = compare(exported, expected)
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


def verify(
    pipeline: pipeline_pb2.TrainEvalPipelineConfig,
    checkpoint: str,
    output_directory: str | os.PathLike,
    image_paths: Sequence[os.PathLike],
    *,
    precision: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> verification.Comparison:
    """Compares an export's detections with those of the model in process, on image files.

    `precision` is the precision of the export; `progress` is called before each image with the
    number of finished images and the total number.
    """

    def images() -> Iterator[np.ndarray]:
        for index, path in enumerate(image_paths):
            progress(index, len(image_paths))
            yield read_image(path)[0]

    chosen = precisions.resolve(pipeline.train_config, precision)
    detector = load_detector(pipeline, checkpoint, chosen)
    with precisions.scope(chosen):
        exported = SavedDetector(output_directory)
        return verification.compare(exported, verification.in_process(detector), images())
