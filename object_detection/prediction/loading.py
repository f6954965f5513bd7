"""Loads a detector with its weights, to be called on images from Python; see `Runtime`."""

import functools
import logging
import os
import pathlib
from collections.abc import Callable

import tensorflow as tf

from object_detection.config.reader import read_pipeline
from object_detection.errors import UserError
from object_detection.export import exporter
from object_detection.export.formats import formats
from object_detection.models import precision as precisions
from object_detection.runtime import class_names
from object_detection.runtime.file_detector import FileRuntime
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.runtime.runtime import Runtime
from object_detection.runtime.saved_detector import SavedModelRuntime, find_saved_model
from object_detection.training.evaluation import best_checkpoint, results
from object_detection.validation.resumption import CONFIG_FILE_NAME
from object_detection.validation.validate import validate
from object_detection.weights import checkpoints, restore
from object_detection.weights.conversion import CONFIG_FILE

_logger = logging.getLogger(__name__)

# The first of these files in a folder is its config: a training writes its resolved config.
_CONFIGS = (CONFIG_FILE_NAME, CONFIG_FILE)


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | os.PathLike | None = None,
    config: str | os.PathLike | None = None,
    label_map: str | os.PathLike | None = None,
    precision: str | None = None,
) -> Runtime:
    """Loads a detector with its weights.

    Args:
      path: the output of `tfod export` or `exporter_main_v2`, or a SavedModel's own folder; or the
        `model_dir` of a training, whose newest checkpoint is loaded; or the unpacked archive of a
        trained model; or a folder with checkpoints and a config, or the prefix of one checkpoint in
        it; or the file of a detector of torchvision or detectron2 (.pth, .pt, .pkl, .safetensors),
        with `config`; or a file of another format of `tfod export --format`, or a folder that holds
        one such file. If there is a SavedModel, it is loaded, and else the model file.
      checkpoint: loads the config and this checkpoint in place of a SavedModel: 'best', the best
        model of the training (`model_dir/best`); a name in `path`, such as 'ckpt-7'; or another
        folder or prefix.
      config: the pipeline config; None takes `resolved_pipeline.config` or `pipeline.config` of
        `path`, or of its parent folder. If given, the checkpoint is loaded, not a SavedModel.
      label_map: label map with the names of the classes; None takes the names of the SavedModel, or
        the label map that the config names, or that the training has stored with the checkpoint.
      precision: the precision in which a checkpoint computes, a name such as 'bfloat16'; None takes
        the config's. That of an export is fixed, and another one is refused.

    Raises:
      ValueError: if `path` holds neither a SavedModel nor a config and a checkpoint, or the config
        or label map is wrong (ConfigError), or the checkpoint is of another model
        (CheckpointError).
    """
    text = None if label_map is None else class_names.read_file(os.fspath(label_map))
    labels = None if text is None else class_names.parse(text, str(label_map))
    folder = os.fspath(path)
    exported = _find_exported(folder) if checkpoint is None and config is None else None
    if exported is not None:
        detector = exported()
        if precision is not None:
            _check_precision(detector, precision)
        _logger.info('loaded %s', detector.source)
        if labels is not None:
            detector.labels = labels
        return detector
    prefix = checkpoints.find(_checkpoint_path(folder, checkpoint))
    config_path = _required_config(folder) if config is None else os.fspath(config)
    pipeline = read_pipeline(config_path)
    validate(pipeline, for_what='export')
    model = exporter.load_detector(pipeline, prefix, precision, only_rgb=False)
    _logger.info('loaded %s (step %d) by %s', prefix, restore.read_step(prefix), config_path)
    if labels is None:
        labels = class_names.parse(
            class_names.read_text(pipeline, checkpoint=prefix, config_path=config_path)
        )
    chosen = precisions.resolve(pipeline.train_config, precision)
    runtime = ProcessRuntime(
        model,
        source=prefix,
        labels=labels,
        precision=chosen,
        channels=pipeline.train_input_reader.num_channels,
    )
    evaluations = results.of_checkpoint(prefix, restore.read_step(prefix))
    runtime.advised_threshold = results.advised_threshold(evaluations)
    return runtime


def _check_precision(detector: SavedModelRuntime | FileRuntime, precision: str) -> None:
    """Refuses a precision that an export was not exported with.

    Raises:
      UserError: which names the format, its precision and how to export another.
    """
    if detector.precision == precisions.canonical(precision):
        return
    kind, remedy = 'a SavedModel', f'`tfod export --precision {precision}`'
    if isinstance(detector, FileRuntime):
        kind = f'a file of the format {detector.description.format}'
        if detector.quantization is not None:
            kind += f' with weights of {detector.quantization}'
            remedy = '`tfod export --format tflite --quantization float16`'
    raise UserError(
        f'precision: {detector.source} is {kind}, whose precision is fixed: '
        f'{detector.precision or "it does not store which"}. Expected that one, or the checkpoint '
        f'of the model; {remedy} exports another. Received: {precision!r}.'
    )


def _find_exported(path: str) -> Callable[[], SavedModelRuntime | FileRuntime] | None:
    """Returns the loader of the SavedModel or the model file at `path`; None if there is none."""
    if find_saved_model(path) is not None:
        return functools.partial(SavedModelRuntime, path)
    file = formats.find(pathlib.Path(path))
    return None if file is None else functools.partial(formats.load, file)


def _checkpoint_path(folder: str, checkpoint: str | os.PathLike | None) -> str:
    if checkpoint is None:
        if not tf.io.gfile.exists(folder) and not checkpoints.exists(folder):
            raise UserError(f'{folder}: there is no such file or folder.')
        return folder
    name = os.fspath(checkpoint)
    inside = os.path.join(folder, name)
    if name == best_checkpoint.FOLDER or os.path.isdir(inside) or checkpoints.exists(inside):
        return inside
    if not tf.io.gfile.exists(name) and not checkpoints.exists(name):
        raise UserError(
            f'load: expected `checkpoint` to be one of {folder}, or a path of its own. '
            f'Received: {name}, and there is neither {inside} nor {name}.'
        )
    return name


def find_config(folder: str) -> str | None:
    """Returns the config of a folder or prefix, or of its parent folder (best/ and checkpoint/)."""
    path = pathlib.Path(folder)
    for parent in (path, path.parent, path.absolute().parent):
        for name in _CONFIGS:
            if (parent / name).is_file():
                return str(parent / name)
    return None


def _required_config(folder: str) -> str:
    found = find_config(folder)
    if found is not None:
        return found
    raise UserError(
        f'{folder}: expected a SavedModel, or a checkpoint with its {CONFIG_FILE} (name another '
        'with `config`). Received: no config here or in the folder above.'
    )
