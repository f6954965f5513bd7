"""A loaded detector as the server sees it: rows of its input in, the outputs of each row out."""

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from object_detection.core.detections import Detections
from object_detection.data import image_files
from object_detection.data.image_decoding import decode_image, decode_values
from object_detection.data.tiff import plain_files
from object_detection.errors import UnusableError, UserError
from object_detection.metrics.detections import coco_results
from object_detection.prediction import loading
from object_detection.serving.limits import RequestError

# Dtypes of inputs.
UINT8, FLOAT, STRING = 'uint8', 'float32', 'string'
# A JPEG file of few bytes can have thousands of scans, each of which takes the time of an image.
_SCAN, _MAX_SCANS = b'\xff\xda', 100
_JPEG = b'\xff\xd8'
_DAMAGED = 'cannot be decoded: the file is damaged or cut off.'
_FLOATS = 'has values of floats, which need a model with image_resizer.value_range.'
_WARM_UP_SIZE = (64, 64)

Row = bytes | np.ndarray
Outputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor of a signature; `shape` has the axis of the batch, None are sizes that vary."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


class LoadedModel:
    """What the server needs of a model that `object_detection.load` can load.

    Args:
      path: a SavedModel, a file of another format, a model_dir or an unpacked archive.
      **options: those of `loading.load`: `checkpoint`, `config`, `label_map`, `precision`.

    Attributes:
      source: the file or folder that it was loaded from.
      precision: in which it computes; None if unknown.
      class_names: 1-based class id -> name.
      advised_threshold: the score with the greatest F1 in its evaluation; None if unknown.
      input: images [B, H, W, 3] of uint8 or float32, or strings [B].
      outputs: the tensors of the answer, each with the axis B.

    Raises:
      UserError: if there is no such model, or it takes other inputs than images.
    """

    def __init__(self, path: str | os.PathLike, **options: Any):
        self._runtime = loading.load(path, **options)
        self.source = os.fspath(path)
        self.precision = self._runtime.precision
        self.class_names = self._runtime.class_names
        self.advised_threshold = self._runtime.advised_threshold
        spec = self._runtime.input_spec
        shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
        self.input = TensorInfo(spec.name, spec.dtype.name, shape)
        height, width = self._runtime.input_size or _WARM_UP_SIZE
        (outputs,) = self.run([self.as_row(Picture.of(np.zeros((height, width, 3), np.uint8)))])
        self.outputs = self._output_infos(outputs)

    def as_row(self, picture: 'Picture') -> Row:
        """Returns a decoded image as a row of the input."""
        if self.input.dtype == STRING:
            return self._runtime.as_input(picture.encoded)
        if self._runtime.value_range is None:
            if picture.image is None:
                raise RequestError(422, _FLOATS)
            return picture.image
        return picture.values.astype(np.float32)

    def check_row(self, row: Row, max_pixels: int) -> Row:
        """Returns a row that a client has made, after a check of what decoding it would cost.

        Raises:
          RequestError: with status 400 if it holds no image, and 413 for one of more pixels.
        """
        if self.input.dtype != STRING:
            return row
        try:
            encoded = self._runtime.image_of(row)
            read_size(encoded, max_pixels)
            _check_scans(encoded)
            # TensorFlow may not survive an animation in a model that does not look for it.
            first = image_files.first_picture(encoded, max_pixels)
            return row if first is encoded else self._runtime.as_input(first)
        except RequestError as error:
            status = 400 if error.status == 422 else error.status
            raise RequestError(status, f'{self.input.name}: {error}') from error
        except UserError as error:
            raise RequestError(400, f'{self.input.name}: {error}') from error

    def run(self, rows: Sequence[Row]) -> list[Outputs]:
        """Returns the outputs of rows of one shape and dtype, each without the axis B."""
        if self.input.dtype == STRING:
            outputs = self._run_strings(rows)
        else:
            outputs = self._runtime(np.stack(rows))
        arrays = {name: value.numpy() for name, value in outputs.items()}
        return [{name: value[i] for name, value in arrays.items()} for i in range(len(rows))]

    def _run_strings(self, rows: Sequence[Row]) -> Mapping[str, tf.Tensor]:
        try:
            return self._runtime.run_serialized(rows)
        except tf.errors.InvalidArgumentError as error:
            raise RequestError(400, f'{self.input.name}: {_DAMAGED}') from error

    def _output_infos(self, outputs: Outputs) -> tuple[TensorInfo, ...]:
        """Returns the outputs by name, as the signature has them or as a run gave them."""
        function = self._runtime.traced_function
        known = {} if function is None else function.structured_outputs
        infos = []
        for name, value in sorted(outputs.items()):
            shape = known[name].shape if name in known else (None, *value.shape)
            rank_is_known = name not in known or shape.rank is not None
            infos.append(
                TensorInfo(name, value.dtype.name, tuple(shape) if rank_is_known else None)
            )
        return tuple(infos)


@dataclasses.dataclass(frozen=True)
class Picture:
    """An image of a request.

    Attributes:
      image: uint8 [H, W, 3], RGB and upright; None for a TIFF file of floats.
      encoded: a file with these pixels.
      values: [H, W, 3], the values that the file stores, of 8 or 16 bits, or floats.
    """

    image: np.ndarray | None
    encoded: bytes
    values: np.ndarray

    @classmethod
    def of(cls, image: np.ndarray) -> 'Picture':
        """Returns an image and its PNG file."""
        file = io.BytesIO()
        Image.fromarray(image).save(file, 'PNG')
        return cls(image, file.getvalue(), image)


def read_size(encoded: bytes, max_pixels: int) -> tuple[int, int]:
    """Returns (height, width) of an image file by its header.

    Raises:
      RequestError: with status 413 for an image of more pixels, and 422 for another file.
    """
    try:
        height, width = image_files.stored_size(encoded)
    except UnusableError as error:
        raise RequestError(422, str(error)) from error
    check_pixels(height, width, max_pixels)
    return height, width


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raises RequestError, with status 413, for more pixels than are allowed."""
    if height * width > max_pixels:
        raise RequestError(
            413, f'is {height} pixels high and {width} wide; expected at most {max_pixels} pixels.'
        )


def read_picture(encoded: bytes, max_pixels: int) -> Picture:
    """Decodes an image file; it is rotated by its EXIF data.

    Raises:
      RequestError: with status 413 for an image of more pixels, and 422 if it cannot be decoded.
    """
    _check_scans(encoded)
    try:
        upright = image_files.read_upright(encoded, max_pixels=max_pixels).encoded
        if image_files.has_16_bits(upright):
            values = decode_values(tf.constant(upright)).numpy()
            if plain_files.is_of_floats(upright):
                return Picture(None, upright, values)
            return Picture(decode_image(tf.constant(upright)).numpy(), upright, values)
        image = decode_image(tf.constant(upright)).numpy()
        return Picture(image, upright, image)
    except UnusableError as error:
        raise RequestError(422, str(error)) from error
    except tf.errors.InvalidArgumentError as error:
        raise RequestError(422, _DAMAGED) from error


def _check_scans(encoded: bytes) -> None:
    if encoded.startswith(_JPEG) and encoded.count(_SCAN) > _MAX_SCANS:
        raise RequestError(422, f'is a JPEG file of more than {_MAX_SCANS} scans.')


def describe_detections(
    outputs: Outputs,
    size: tuple[int, int],
    names: Mapping[int, str],
    *,
    min_score: float,
    max_detections: int | None,
    masks: bool,
) -> list[dict[str, Any]]:
    """Returns the detections of an image, the best first, as entries of COCO results.

    Args:
      outputs: what the model gave for the image.
      size: (height, width) of the image in pixels.
      names: 1-based class id -> name.
      min_score: lowest score.
      max_detections: most detections; None for all.
      masks: whether entries have `segmentation`, where the model predicts masks.

    Returns:
      entries with `category_id`, `category_name`, `bbox` [x, y, width, height] in pixels, `score`,
      `segmentation`, the compressed run-length encoding of COCO, and `keypoints`, x, y and score of
      each, where the model predicts them.
    """
    batch = {name: np.asarray(value)[np.newaxis] for name, value in outputs.items()}
    (found,) = Detections.from_batch(batch, [size], label_id_offset=0)
    entries = coco_results(found.above(min_score).best(max_detections), 0, masks=masks)
    for entry in entries:
        del entry['image_id']
        entry['category_name'] = names.get(entry['category_id'], str(entry['category_id']))
    return entries
