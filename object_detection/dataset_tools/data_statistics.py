"""Measures a converted data set, so that a config can be fitted to it."""

import dataclasses
import glob
import itertools
import math
import os

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import label_map
from object_detection.errors import ConfigError
from object_detection.validation import records

# Maximum number of measured records; from a larger set, equally many of each file are measured.
MAX_SAMPLED_RECORDS = 2000


@dataclasses.dataclass(frozen=True)
class DataStatistics:
    """Measurements of a set of records.

    Attributes:
      pattern: the pattern of its files.
      label_map_path: its label map.
      class_names: id -> name of every class of the label map.
      num_images: number of records in all files.
      num_sampled: number of measured records, which have a known image size.
      image_sizes: int64 [num_sampled, 2], height and width, pixels.
      objects_per_image: int64 [num_sampled].
      box_sizes: float64 [objects, 2], height and width relative to the image's longer side.
      box_classes: int64 [objects], their ids; 0 for a class that the label map lacks.
      mask_type: 'PNG_MASKS' or 'NUMERICAL_MASKS', or '' if no record has masks.
    """

    pattern: str
    label_map_path: str
    class_names: dict[int, str]
    num_images: int
    num_sampled: int
    image_sizes: np.ndarray
    objects_per_image: np.ndarray
    box_sizes: np.ndarray
    box_classes: np.ndarray
    mask_type: str

    @property
    def objects_per_class(self) -> dict[str, int]:
        """Name of every class of the label map -> number of objects."""
        return {
            name: int((self.box_classes == number).sum())
            for number, name in self.class_names.items()
        }


def find_pattern(prefix: str) -> str:
    """Returns the pattern of the TFRecord files that a conversion wrote under `prefix`.

    `prefix` may also be the path or the pattern of the files themselves.

    Raises:
      ConfigError: if there are none; the message names the expected files.
    """
    for pattern in (f'{prefix}-?????-of-?????', prefix, f'{prefix}.record', f'{prefix}.tfrecord'):
        if any(map(os.path.isfile, glob.glob(pattern))):
            return pattern
    raise ConfigError(
        f'{prefix}: expected what `tfod convert ... --output` was given, so that there are files '
        f'{prefix}-00000-of-00010 and so on. Received: there are none.'
    )


def measure(prefix: str, label_map_path: str = '') -> DataStatistics:
    """Measures the records that were converted to `prefix`.

    Args:
      prefix: as for `find_pattern`.
      label_map_path: their label map; '' takes `PREFIX_label_map.pbtxt`.

    Raises:
      ConfigError: if files are missing, are not records, or hold no objects.
    """
    pattern = find_pattern(prefix)
    label_map_path = label_map_path or f'{prefix}_label_map.pbtxt'
    try:
        known = label_map.load(label_map_path)
    except ValueError as error:
        raise ConfigError(f'{error} Name the label map of the data with --label_map.') from error
    names = known.names
    sample = _Sample(known.text_to_id, names)
    files = sorted(glob.glob(pattern))
    most = math.ceil(MAX_SAMPLED_RECORDS / len(files))
    # Imported here, since TensorFlow takes seconds to load and the errors above do not need it.
    from object_detection.data.pipeline import record_files

    try:
        num_images = record_files.count([pattern])
        for name in files:
            for features in itertools.islice(records.read_features(name), most):
                sample.add(features)
    except records.UnreadableError as error:
        raise ConfigError(f'{error}.') from error
    if not sample.box_sizes:
        raise ConfigError(
            f'{prefix}: expected records with image/height, image/width and objects '
            f'({keys.YMIN} and so on). Received: none in {num_images} records.'
        )
    return DataStatistics(
        pattern=pattern,
        label_map_path=label_map_path,
        class_names=names,
        num_images=num_images,
        num_sampled=len(sample.image_sizes),
        image_sizes=np.array(sample.image_sizes, np.int64),
        objects_per_image=np.array(sample.objects_per_image, np.int64),
        box_sizes=np.array(sample.box_sizes, np.float64),
        box_classes=np.array(sample.box_classes, np.int64),
        mask_type=sample.mask_type,
    )


class _Sample:
    """Measurements of the records read so far; see `DataStatistics`."""

    def __init__(self, text_to_id: dict[str, int], names: dict[int, str]):
        self._text_to_id = text_to_id
        self._names = names
        self.image_sizes: list[tuple[int, int]] = []
        self.objects_per_image: list[int] = []
        self.box_sizes: list[tuple[float, float]] = []
        self.box_classes: list[int] = []
        self.mask_type = ''

    def add(self, features) -> None:
        """Adds an example; `features` maps its keys to tf.train.Feature."""
        height, width = (
            next(iter(features[key].int64_list.value), 0) for key in (keys.HEIGHT, keys.WIDTH)
        )
        if height <= 0 or width <= 0:
            return
        self.image_sizes.append((height, width))
        ymin, xmin, ymax, xmax = (features[side].float_list.value for side in keys.BOX_SIDES)
        self.objects_per_image.append(len(ymin))
        longer = max(height, width)
        classes = itertools.chain(self._classes(features), itertools.repeat(0))
        for *box, number in zip(ymin, xmin, ymax, xmax, classes, strict=False):
            size = ((box[2] - box[0]) * height / longer, (box[3] - box[1]) * width / longer)
            if all(math.isfinite(side) and side > 0 for side in size):
                self.box_sizes.append(size)
                self.box_classes.append(number)
        masks = features[keys.MASK]
        if masks.bytes_list.value:
            self.mask_type = 'PNG_MASKS'
        elif masks.float_list.value:
            self.mask_type = 'NUMERICAL_MASKS'

    def _classes(self, features) -> list[int]:
        texts = features[keys.CLASS_TEXT].bytes_list.value
        ids = [self._text_to_id.get(text.decode(errors='replace'), 0) for text in texts]
        ids = ids or features[keys.CLASS_LABEL].int64_list.value
        return [value if value in self._names else 0 for value in ids]
