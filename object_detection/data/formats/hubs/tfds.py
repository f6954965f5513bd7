"""Data sets of TensorFlow Datasets, as its package downloads, prepares and describes them.

A record has an image, and a sequence of objects with a box and the number of a class. Records are
read one by one at their places in the TFRecord files.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from object_detection.data import tf_record_files
from object_detection.data.formats.hubs import rows as hub_rows
from object_detection.data.formats.hubs.rows import HubSource, Table
from object_detection.data.formats.source import option
from object_detection.errors import UserError, expected, format_list
from object_detection.system import extras


@dataclasses.dataclass(frozen=True)
class TfdsSource(HubSource):
    """A split of a data set that the package tensorflow-datasets prepares.

    Attributes:
      data_dir: where it keeps data sets; '' is its default.
    """

    data_dir: str = option('', 'Folder of prepared data sets; by default ~/tensorflow_datasets.')

    def table(self) -> Table:
        info = self._prepared()
        split = info.splits[self.chosen(info.splits)]
        images = [name for name, each in info.features.items() if type(each).__name__ == 'Image']
        kinds = {name: getattr(each, 'feature', None) for name, each in info.features.items()}
        found = {
            name: keys
            for name, each in kinds.items()
            if hasattr(each, 'keys') and (keys := hub_rows.object_keys(each.keys()))
        }
        if not images or not found:
            raise UserError(
                f'{self.data}: expected an image, and a sequence of objects with '
                f'{hub_rows.BOX_KEYS[0]} and label. Received: {format_list(info.features)}.'
            )
        image, (objects, (box, label)) = images[0], next(iter(found.items()))
        if type(kinds[objects][box]).__name__ != 'BBoxFeature':
            raise expected(f'{self.data}: {objects}/{box}', 'a BBoxFeature', kinds[objects][box])
        import tensorflow_datasets as tfds

        skip = {name: tfds.decode.SkipDecoding() for name in images}
        places = [
            (str(path), place.offset)
            for path in split.filepaths
            for place in tf_record_files.positions(str(path))
        ]

        def row_of(index: int) -> dict[str, Any]:
            record = tf_record_files.read_record(*places[index])
            row = info.features.deserialize_example_np(record, decoders=skip)
            return {**row, 'image': {'bytes': row[image]}, 'objects': row[objects]}

        def values() -> Iterator[Any]:
            rows = map(row_of, range(len(places)))
            return itertools.chain.from_iterable(row['objects'][label] for row in rows)

        names = getattr(kinds[objects][label], 'names', None)
        return Table([''] * len(places), names, values, row_of, _corners)

    def _prepared(self) -> Any:
        """Returns the description of the data set, which is downloaded if it is not there."""
        extras.check_packages('tfod convert tfds', ['tensorflow_datasets'], 'tfds')
        import tensorflow_datasets as tfds

        if self.data_dir and os.path.isdir(self.data):
            raise expected('--data_dir', f'none, since {self.data} is a folder', self.data_dir)
        # The package raises many kinds of errors, some with the names of all data sets.
        try:
            if os.path.isdir(self.data):
                builder = tfds.builder_from_directory(self.data)
            else:
                builder = tfds.builder(self.data, data_dir=self.data_dir or None)
                builder.download_and_prepare()
        except Exception as error:
            text = str(error).partition('\nAvailable datasets')[0]
            raise UserError(f'{self.data}: cannot be prepared by TFDS: {text}') from error
        if builder.info.file_format.name != 'TFRECORD':
            raise expected(self.data, 'TFRecord files', builder.info.file_format.name)
        return builder.info


def _corners(box: np.ndarray, height: int, width: int) -> Sequence[float]:
    return box * np.array([height, width] * 2)
