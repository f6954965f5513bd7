"""Loads a detector with its weights, to be called on images from Python."""

import contextlib
import functools
import hashlib
import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.config.reader import read_pipeline
from object_detection.core.detections import Detections
from object_detection.data import label_map as label_maps
from object_detection.data.label_map import LabelMap
from object_detection.errors import UserError
from object_detection.export import exporter, saved_model
from object_detection.export.formats import formats
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import precision as precisions
from object_detection.resizers.value_range import ValueRange
from object_detection.runtime import class_names, side_inputs
from object_detection.runtime.file_detector import FileDetector
from object_detection.runtime.saved_detector import SavedDetector, find_saved_model
from object_detection.training.evaluation import best_checkpoint
from object_detection.validation.resumption import CONFIG_FILE_NAME
from object_detection.validation.validate import validate
from object_detection.visualization import drawing
from object_detection.weights import checkpoints, restore
from object_detection.weights.conversion import CONFIG_FILE

_logger = logging.getLogger(__name__)

# The first of these files in a folder is its config: a training writes its resolved config.
_CONFIGS = (CONFIG_FILE_NAME, CONFIG_FILE)
_MIN_PICTURE_SIZE = 512


class Detector:
    """A detector with its weights; call it on images.

    Attributes:
      source: the SavedModel, the model file, or the prefix of the checkpoint, from which it was
        loaded.
      labels: the classes; none where no label map was found.
      class_names: 1-based class id -> name.
      keypoint_edges: pairs of keypoints, indices from 0 on, between which `draw` draws lines.
      precision: the precision in which it computes; None for a SavedModel that does not store
        it.
      model: the `DetectionModel`, which can be trained; None for an exported model.
    """

    def __init__(
        self,
        detect: SavedDetector | FileDetector | saved_model.InProcessDetector,
        *,
        source: str,
        labels: LabelMap,
        precision: str | None,
        model: DetectionModel | None = None,
    ):
        self._detect = detect
        self.source = source
        self.labels = labels
        self.class_names = labels.names
        self.keypoint_edges = label_maps.keypoint_edges(labels)
        self.precision = precision
        self.model = model

    def __repr__(self) -> str:
        classes = f'{len(self.class_names)} class names' if self.class_names else 'no class names'
        return f'<object_detection detector of {self.source}, {classes}>'

    @property
    def traced_function(self) -> Any:
        """The concrete function from a batch to detections; None for a model of another format."""
        return getattr(self._detect, 'traced_function', None)

    @property
    def saved(self) -> SavedDetector | None:
        """The SavedModel, with its own input and raw outputs; None for other models."""
        return self._detect if isinstance(self._detect, SavedDetector) else None

    @property
    def input_size(self) -> tuple[int, int] | None:
        """The (height, width) that images are resized to, if the model stores it."""
        return getattr(self._detect, 'input_size', None)

    @property
    def quantization(self) -> str | None:
        """What the weights of a file were rounded to, such as 'int8', if the file says it."""
        return getattr(self._detect, 'quantization', None)

    @property
    def value_range(self) -> ValueRange | None:
        """The range of the values of images that the model declares; None is 0..255."""
        return self._detect.value_range

    @property
    def side_inputs(self) -> dict[str, tf.TensorSpec]:
        """Name -> spec of what the model takes with the images, such as `context_features`."""
        return getattr(self._detect, 'side_inputs', {})

    def fingerprint(self) -> str:
        """Returns what tells a model with other weights apart."""
        if self.saved is not None:
            return f'SavedModel {self.saved.checkpoint_hash()}'
        digest = hashlib.sha256()
        if self.model is None:
            digest.update(pathlib.Path(self.source).read_bytes())
        else:
            for name, variable in sorted(self.model.named_variables().items()):
                digest.update(name.encode() + variable.numpy().tobytes())
        return digest.hexdigest()

    def __call__(
        self, images: np.ndarray | tf.Tensor, **given: np.ndarray | tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Detects objects.

        Args:
          images: uint8 or float, RGB, in `value_range`: one image [H, W, 3] of any size, or a
            batch [B, H, W, 3].
          given: values of `side_inputs`, with an axis B if the images have one; zeros, as for
            images without a context, are taken for those that are not given.

        Returns:
          float32 tensors under the reference's names: detection_boxes [B, T, 4], as [ymin, xmin,
          ymax, xmax] normalized to the image; detection_scores [B, T], in [0, 1], the best first;
          detection_classes [B, T], ids from 1, as `class_names` has them; num_detections [B], how
          many of the T rows are used (the others are 0); with a mask head detection_masks
          [B, T, h, w], probabilities relative to the box, for `object_detection.paste_masks`; and
          further outputs of the model (docs/conventions.md). A single image has no axis B.

        Raises:
          ValueError: if `images` is of another type or shape, or the model takes no such side
            inputs.
        """
        images = _check_images(images, self.value_range)
        is_single = images.shape.rank == 3
        side_inputs.check_names(given, self.side_inputs, self.source)
        values = {
            name: tf.convert_to_tensor(value, self.side_inputs[name].dtype)
            for name, value in given.items()
        }
        if is_single:
            values = {name: value[tf.newaxis] for name, value in values.items()}
        with precisions.scope(self.precision) if self.precision else contextlib.nullcontext():
            outputs = self._detect.run_batch(images[tf.newaxis] if is_single else images, **values)
        return {key: value[0] for key, value in outputs.items()} if is_single else dict(outputs)

    def draw(
        self,
        image: np.ndarray | tf.Tensor,
        detections: Mapping[str, np.ndarray | tf.Tensor] | None = None,
        *,
        min_score: float = 0.5,
        max_boxes: int = 100,
    ) -> np.ndarray:
        """Draws boxes, masks, keypoints, class names and scores on a copy of an image.

        Args:
          image: uint8 or float [H, W, 3], RGB, in `value_range`.
          detections: the detector's output for the image; None computes it.
          min_score: lowest score that is drawn.
          max_boxes: maximum number of objects that are drawn, in descending order of scores.

        Returns:
          uint8 [H', W', 3]; small images are enlarged by a whole number, so that names are legible.
        """
        image = np.asarray(image)
        found = self(image) if detections is None else detections
        if self.value_range is not None:
            image = self.value_range.picture(image)
        batch = {key: np.asarray(value)[np.newaxis] for key, value in found.items()}
        (objects,) = Detections.from_batch(batch, [image.shape[:2]], label_id_offset=0)
        return drawing.draw_detections(
            image,
            objects,
            edges=self.keypoint_edges,
            names=self.class_names,
            min_score=min_score,
            max_boxes=max_boxes,
            scale=max(1, _MIN_PICTURE_SIZE // max(image.shape[:2])),
        )


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | os.PathLike | None = None,
    config: str | os.PathLike | None = None,
    label_map: str | os.PathLike | None = None,
    precision: str | None = None,
) -> Detector:
    """Loads a detector with its weights.

    Args:
      path: the output of `tfod export` or `exporter_main_v2`, or a SavedModel's own folder; or the
        `model_dir` of a training, whose newest checkpoint is loaded; or the unpacked archive of a
        trained model; or a folder with checkpoints and a config, or the prefix of one checkpoint in
        it; or a file of another format of `tfod export --format`, or a folder that holds one such
        file. If there is a SavedModel, it is loaded, and else the model file.
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
        _logger.info('loaded %s', detector.directory)
        return Detector(
            detector,
            source=detector.directory,
            labels=detector.labels if labels is None else labels,
            precision=detector.precision,
        )
    prefix = checkpoints.find(_checkpoint_path(folder, checkpoint))
    config_path = _required_config(folder) if config is None else os.fspath(config)
    pipeline = read_pipeline(config_path)
    validate(pipeline, for_what='export')
    model = exporter.load_detector(pipeline, prefix, precision)
    _logger.info('loaded %s (step %d) by %s', prefix, restore.read_step(prefix), config_path)
    if labels is None:
        labels = class_names.parse(
            class_names.read_text(pipeline, checkpoint=prefix, config_path=config_path)
        )
    return Detector(
        saved_model.InProcessDetector(model),
        source=prefix,
        labels=labels,
        precision=precisions.resolve(pipeline.train_config, precision),
        model=model,
    )


def _check_precision(detector: SavedDetector | FileDetector, precision: str) -> None:
    """Refuses a precision that an export was not exported with.

    Raises:
      UserError: which names the format, its precision and how to export another.
    """
    if detector.precision == precisions.canonical(precision):
        return
    kind, remedy = 'a SavedModel', f'`tfod export --precision {precision}`'
    if isinstance(detector, FileDetector):
        kind = f'a file of the format {detector.description.format}'
        if detector.quantization is not None:
            kind += f' with weights of {detector.quantization}'
            remedy = '`tfod export --format tflite --quantization float16`'
    raise UserError(
        f'precision: {detector.directory} is {kind}, whose precision is fixed: '
        f'{detector.precision or "it does not store which"}. Expected that one, or the checkpoint '
        f'of the model; {remedy} exports another. Received: {precision!r}.'
    )


def _find_exported(path: str) -> Callable[[], SavedDetector | FileDetector] | None:
    """Returns the loader of the SavedModel or the model file at `path`; None if there is none."""
    if find_saved_model(path) is not None:
        return functools.partial(SavedDetector, path)
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


def _check_images(images: np.ndarray | tf.Tensor, value_range: ValueRange | None) -> tf.Tensor:
    tensor = tf.convert_to_tensor(images)
    if value_range is not None and tensor.dtype == tf.uint8 and value_range.max > 255.0:
        raise UserError(
            f'Detector: expected images with the values of the model, {value_range.min:g} to '
            f'{value_range.max:g}, as read_image(path, detector) reads them. Received: uint8.'
        )
    if value_range is not None and tensor.dtype == tf.uint16:
        tensor = tf.cast(tensor, tf.float32)
    is_image = tensor.shape.rank in (3, 4) and tensor.shape[-1] == 3
    if not is_image or not (tensor.dtype == tf.uint8 or tensor.dtype.is_floating):
        raise UserError(
            'Detector: expected images uint8 or float, of shape [H, W, 3] or '
            f'[B, H, W, 3]. Received: {tensor.dtype.name} {tensor.shape.as_list()}.'
        )
    return tensor
