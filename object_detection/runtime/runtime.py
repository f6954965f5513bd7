"""What runs a detector, wherever its weights are: images in, detections out."""

import abc
import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from object_detection.core.detections import Detections
from object_detection.data import label_map as label_maps
from object_detection.data.label_map import LabelMap
from object_detection.errors import UserError
from object_detection.models import precision as precisions
from object_detection.resizers.value_range import ValueRange
from object_detection.runtime import images as image_inputs
from object_detection.runtime import side_inputs
from object_detection.visualization import drawing

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel


class Runtime(abc.ABC):
    """A detector with its weights; call it on images.

    Attributes:
      source: the SavedModel, the model file, or the prefix of the checkpoint, from which it was
        loaded.
      labels: the classes; none where no label map was found.
      precision: the precision in which it computes; None for an export that does not store it.
      value_range: the range of the values of images that the model declares; None is 0..255.
      channels: C, the number of channels of images; 3 are red, green and blue.
      side_inputs: name -> spec of what the model takes with the images, such as `context_features`.
        They are zero where they are not given.
      model: the `DetectionModel`, which can be trained; None for an exported model.
      input_size: the (height, width) that images are resized to, if the model stores it.
      quantization: what the weights of a file were rounded to, such as 'int8', if the file says it.
      advised_threshold: the score from which on F1 was greatest in the model's evaluation; None
        where it is not known.
      traced_function: the concrete function from a batch to detections; None for a model of another
        format.
    """

    source: str
    labels: LabelMap
    precision: str | None
    value_range: ValueRange | None
    channels: int = 3
    side_inputs: Mapping[str, tf.TensorSpec] = {}
    model: 'DetectionModel | None' = None
    input_size: tuple[int, int] | None = None
    quantization: str | None = None
    advised_threshold: float | None = None
    traced_function: Any = None

    def __repr__(self) -> str:
        classes = f'{len(self.class_names)} class names' if self.class_names else 'no class names'
        return f'<object_detection detector of {self.source}, {classes}>'

    @property
    def class_names(self) -> Mapping[int, str]:
        """1-based class id -> name."""
        return self.labels.names

    @property
    def keypoint_edges(self) -> Sequence[tuple[int, int]]:
        """Pairs of keypoints, indices from 0 on, between which `draw` draws lines."""
        return label_maps.keypoint_edges(self.labels)

    @property
    def input_spec(self) -> tf.TensorSpec:
        """The input: images uint8 or float [B, H, W, C], or strings [B]; its name and shape."""
        dtype = tf.uint8 if self.value_range is None else tf.float32
        return tf.TensorSpec([None, None, None, self.channels], dtype, 'input_tensor')

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Returns a text that is another one for other weights."""

    @abc.abstractmethod
    def run_batch(self, images: tf.Tensor, **given: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Returns the outputs of the model for images, see `__call__`.

        Args:
          images: uint8 or float [B, H, W, C], RGB in `value_range`.
          given: values [B, ...] of `side_inputs`.

        Raises:
          UserError: if only some side inputs are given.
        """

    def __call__(
        self, images: np.ndarray | tf.Tensor, **given: np.ndarray | tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Detects objects.

        Args:
          images: uint8 or float, RGB, in `value_range`: one image [H, W, C] of any size, or a
            batch [B, H, W, C].
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
        images = _check_images(images, self.value_range, self.channels)
        is_single = images.shape.rank == 3
        side_inputs.check_names(given, self.side_inputs, self.source)
        values = {
            name: tf.convert_to_tensor(value, self.side_inputs[name].dtype)
            for name, value in given.items()
        }
        if is_single:
            images, values = images[tf.newaxis], {k: v[tf.newaxis] for k, v in values.items()}
        with precisions.scope(self.precision) if self.precision else contextlib.nullcontext():
            outputs = self.run_batch(images, **values)
        return {key: value[0] for key, value in outputs.items()} if is_single else dict(outputs)

    def run(self, images: Sequence[np.ndarray], **given: np.ndarray) -> list[Detections]:
        """Detects objects in images of one size; arguments as for a batch of a call.

        Returns:
          What was found in each image, in pixels and without padding.
        """
        sizes = [image.shape[:2] for image in images]
        return Detections.from_batch(self(np.stack(images), **given), sizes, label_id_offset=0)

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
          image: uint8 or float [H, W, C], RGB, in `value_range`.
          detections: the detector's output for the image; None computes it.
          min_score: lowest score that is drawn.
          max_boxes: maximum number of objects that are drawn, in descending order of scores.

        Returns:
          uint8 [H', W', 3]; small images are enlarged by a whole number, so that names are legible.
        """
        image = np.asarray(image)
        outputs = self(image) if detections is None else detections
        image = image_inputs.picture(image, self.value_range)
        batch = {key: np.asarray(value)[np.newaxis] for key, value in outputs.items()}
        (found,) = Detections.from_batch(batch, [image.shape[:2]], label_id_offset=0)
        return drawing.draw_detections(
            image,
            found,
            edges=self.keypoint_edges,
            names=self.class_names,
            min_score=min_score,
            max_boxes=max_boxes,
        )


def _check_images(
    images: np.ndarray | tf.Tensor, value_range: ValueRange | None, channels: int
) -> tf.Tensor:
    tensor = tf.convert_to_tensor(images)
    if value_range is not None and tensor.dtype == tf.uint8 and value_range.max > 255.0:
        raise UserError(
            f'Detector: expected images with the values of the model, {value_range.min:g} to '
            f'{value_range.max:g}, as read_image(path, detector) reads them. Received: uint8.'
        )
    if value_range is not None and tensor.dtype == tf.uint16:
        tensor = tf.cast(tensor, tf.float32)
    is_image = tensor.shape.rank in (3, 4) and tensor.shape[-1] == channels
    if not is_image or not (tensor.dtype == tf.uint8 or tensor.dtype.is_floating):
        raise UserError(
            f'Detector: expected images uint8 or float, of shape [H, W, {channels}] or '
            f'[B, H, W, {channels}]. Received: {tensor.dtype.name} {tensor.shape.as_list()}.'
        )
    return tensor


def as_type(images: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Converts between integers and float, rounding."""
    if dtype == images.dtype:
        return images
    return (
        tf.cast(images, dtype) if dtype.is_floating else tf.saturate_cast(tf.round(images), dtype)
    )


def batches(kinds: Sequence[Hashable], size: int) -> Iterator[list[int]]:
    """Yields lists of up to `size` indices of equal kinds, such as the sizes of images."""
    rows_by_kind: dict[Hashable, list[int]] = {}
    for row, kind in enumerate(kinds):
        rows_by_kind.setdefault(kind, []).append(row)
    for rows in rows_by_kind.values():
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
