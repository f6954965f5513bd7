"""Logs objects, unknown classes and empty images that are left out of batches."""

import logging
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.data import objects
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.pipeline import bad_records, record_files
from object_detection.data.pipeline.record_files import Record

_log = logging.getLogger(__name__)

# Positions of the element after the last record: of a complete pass, and of a pass that began
# later.
_END, _PART_END = -1, -2

_REASONS = {**objects.INVALID_KINDS, InputFields.NUM_EXCESS_OBJECTS: 'beyond max_number_of_boxes'}


class DroppedObjectsReport:
    """Logs one warning for each image and reason, for the first images; counts the others silently.

    Args:
      max_warnings: maximum number of images to name for each reason; a last warning says that there
        are more.

    Attributes:
      counts: number of objects left out so far by reason (`objects.INVALID_KINDS`, and
        num_excess_objects), counting each image once.
    """

    def __init__(self, max_warnings: int = 10):
        self._max_warnings = max_warnings
        self._seen: dict[str, set[bytes]] = {reason: set() for reason in _REASONS}
        self.counts = dict.fromkeys(_REASONS, 0)

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds the counters of a batch (from `ExampleTransform`), as NumPy arrays."""
        excess = np.asarray(batch[InputFields.NUM_EXCESS_OBJECTS])
        left_out = np.column_stack([batch[InputFields.INVALID_OBJECTS], excess])
        for i, k in np.argwhere(left_out):
            source_id = bytes(batch[InputFields.SOURCE_ID][i])
            self._add(list(_REASONS)[k], source_id, int(left_out[i, k]))

    def _add(self, reason: str, source_id: bytes, count: int) -> None:
        seen = self._seen[reason]
        if source_id in seen:
            return
        seen.add(source_id)
        self.counts[reason] += count
        if len(seen) <= self._max_warnings:
            _log.warning(
                'Image %s: objects are left out: %d %s.',
                source_id.decode(errors='replace'),
                count,
                _REASONS[reason],
            )
        if len(seen) == self._max_warnings + 1:
            _log.warning('Further images that lose objects %s are not named.', _REASONS[reason])


class UnknownClassReport:
    """Logs the first few class texts of records that a label map lacks, each once.

    Args:
      label_map_path: names the label map in the warnings.
      max_warnings: maximum number of texts to name; a last warning says that there are more.
    """

    def __init__(self, label_map_path: str, max_warnings: int = 10):
        self._label_map_path = label_map_path
        self._max_warnings = max_warnings
        self._seen: set[bytes] = set()

    def update(self, texts: np.ndarray) -> None:
        """Adds the unknown class texts of each image, bytes [n], separated by line breaks."""
        for text in filter(None, b'\n'.join(map(bytes, texts)).split(b'\n')):
            if text in self._seen or len(self._seen) > self._max_warnings:
                continue
            self._seen.add(text)
            if len(self._seen) <= self._max_warnings:
                _log.warning(
                    'Class %r of the records is not in the label map %s, or several share it as '
                    'display_name; its objects are left out.',
                    text.decode(errors='replace'),
                    self._label_map_path,
                )
            else:
                _log.warning('Further classes that are not in the label map are not named.')


class UsableObjects:
    """Decodes the objects of serialized examples that training can use, but not the images.

    Args:
      decoder: decoder of the annotations.
      skip_crowd: whether crowds are left out.
    """

    def __init__(self, decoder: ExampleDecoder, *, skip_crowd: bool):
        self._decoder = decoder
        self._skip_crowd = skip_crowd

    def __call__(self, serialized: tf.Tensor) -> objects.Example:
        """Returns the annotations of the usable objects of an example, string scalar."""
        example = objects.clip_boxes(objects.keep_known(self._decoder.annotations(serialized)))
        if self._skip_crowd:
            example = objects.drop_crowds(example)
        return objects.select(example, example[InputFields.GROUNDTRUTH_WEIGHTS] > 0)


class EmptyImageFilter:
    """Leaves out serialized examples without a usable object.

    Images are not decoded for this. The filter precedes augmentation: an image whose objects a
    random crop removes is not left out.

    Args:
      usable: decoder of the usable objects.
      where: the reader's path in the config, for the log.
    """

    def __init__(self, usable: UsableObjects, where: str):
        self._usable = usable
        self._where = where

    def __call__(self, records: tf.data.Dataset, is_whole: tf.Tensor) -> tf.data.Dataset:
        """Filters (position, record) of one pass over a data set; see `record_order.epochs`."""
        counter = _Counter(self._where)

        def keep(element: tuple[tf.Tensor, Record], is_wanted: tf.Tensor) -> tf.Tensor:
            position, _ = element
            is_kept = (position >= 0) & is_wanted
            # Python is called only for the few records that are left out.
            tf.cond(
                is_kept,
                lambda: tf.constant(0),
                lambda: tf.numpy_function(counter.update, [position], tf.int32),
            )
            return is_kept

        position = tf.where(is_whole, tf.constant(_END, tf.int64), _PART_END)
        nothing = bad_records.empty(records.element_spec[1])
        end = tf.data.Dataset.from_tensors((position, nothing))
        return self._judged(records.concatenate(end)).filter(keep).map(lambda element, _: element)

    def wanted(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the records that are wanted, each with its number."""
        return self._judged(records.enumerate()).filter(lambda _, is_wanted: is_wanted)

    def _judged(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Returns (element, whether its record is wanted) of elements (position, record).

        Wanted are records that training could use, and corrupt ones, which are reported later.
        """
        return bad_records.map_guarded(
            records,
            lambda _, record: self.is_usable(record_files.fetch(record)['serialized']),
            lambda *_: tf.constant(True),
            chunk=bad_records.READ_IN_TURN,
        )

    def is_usable(self, serialized: tf.Tensor) -> tf.Tensor:
        """Whether training could use an example, bool scalar."""
        return tf.size(self._usable(serialized)[InputFields.GROUNDTRUTH_CLASSES]) > 0


class _Counter:
    """Counts the images that are left out, and logs their number after the first complete pass."""

    def __init__(self, where: str):
        self._where = where
        self._count = 0
        self._is_logged = False

    def update(self, position: np.ndarray) -> np.int32:
        if position >= 0:
            self._count += 1
        elif position == _PART_END:
            self._count = 0
        elif not self._is_logged:
            self._is_logged = True
            _log.info(
                '%s.filter_empty_images: %d images without a usable object are left out of each '
                'pass over the data',
                self._where,
                self._count,
            )
        return np.int32(0)
