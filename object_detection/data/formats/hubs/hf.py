"""Data sets of the Hugging Face hub, or in its form: parquet files with images and objects.

A row has an image, and a column of objects, such as `objects {bbox, category}`, whose boxes are
[x, y, width, height] in pixels as a rule. Code that lies in a repository is not run.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from object_detection.data.file_access import Files
from object_detection.data.formats.hubs import rows as hub_rows
from object_detection.data.formats.hubs.rows import HubSource, Table
from object_detection.data.formats.source import Found, option
from object_detection.errors import UserError, expected, format_list
from object_detection.system import extras

XYWH, XYXY, CENTER = 'xywh', 'xyxy', 'cxcywh'
# The beginning of a file's name -> the split of which it is a part, as the package datasets says.
_SPLITS = {'train': 'train', 'val': 'validation', 'dev': 'validation', 'test': 'test'}


@dataclasses.dataclass(frozen=True)
class HfSource(HubSource):
    """A split of a data set that the package datasets opens.

    Attributes:
      config: the configuration, for data sets that have several.
      boxes: what the numbers of a box are: XYWH, XYXY or CENTER.
      relative: whether they are shares of the image's sides, 0 to 1.
    """

    config: str = option('', 'The configuration, for data sets that have several.')
    boxes: str = option(
        XYWH,
        f'What the four numbers of a box are: {XYWH}, as in COCO, {XYXY}, or {CENTER}, of which x '
        'and y are the center.',
    )
    relative: bool = option(False, 'Boxes are shares of the sides, 0 to 1, and no pixels.')

    def table(self) -> Table:
        if self.boxes not in (XYWH, XYXY, CENTER):
            raise expected('--boxes', f'{XYWH}, {XYXY} or {CENTER}', self.boxes)
        rows = self._load()
        features = {name: _unwrapped(each) for name, each in rows.features.items()}
        images = [name for name, each in features.items() if type(each).__name__ == 'Image']
        columns = {'': features, **{k: v for k, v in features.items() if isinstance(v, dict)}}
        found = {
            name: keys for name, each in columns.items() if (keys := hub_rows.object_keys(each))
        }
        if not images or not found:
            raise UserError(
                f'{self.data}: expected a column of images, and one of objects with '
                f'{hub_rows.BOX_KEYS[0]} and {hub_rows.CLASS_KEYS[0]}. Received: '
                f'{format_list(features)}.'
            )
        image, objects = images[0], next(iter(found))
        _, classes = found[objects]
        import datasets

        rows = rows.cast_column(image, datasets.Image(decode=False))

        def objects_of(row: Mapping[str, Any]) -> dict[str, list[Any]]:
            return _columns(row[objects] if objects else row, columns[objects])

        def row_of(index: int) -> dict[str, Any]:
            row = rows[index]
            return {**row, 'image': row[image], 'objects': objects_of(row)}

        def values() -> Iterator[Any]:
            for row in rows.select_columns([objects or classes]):
                yield from (
                    _columns(row[objects], columns[objects])[classes] if objects else row[classes]
                )

        paths = [path for part in rows.data.column(image).chunks for path in part.field('path')]
        names = [os.path.basename(str(path.as_py() or '')) for path in paths]
        kind = _unwrapped(columns[objects][classes])
        return Table(names, getattr(kind, 'names', None), values, row_of, self._corners)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        names = map(os.path.basename, files.list(folder, recursive=True))
        splits = dict.fromkeys(_split_of(name) for name in names if name.endswith('.parquet'))
        return [
            Found(split if len(splits) > 1 else '', cls(data=folder, split=split), '*.parquet')
            for split in splits
        ]

    def _load(self) -> Any:
        extras.check_packages('tfod convert hf', ['datasets'], 'hf')
        import datasets

        datasets.disable_progress_bars()
        # The package and the hub raise many kinds of errors.
        try:
            if os.path.exists(os.path.join(self.data, 'state.json')):
                rows = datasets.load_from_disk(self.data)
                self.chosen([str(rows.split or '')])
                return rows
            if os.path.exists(os.path.join(self.data, 'dataset_dict.json')):
                splits = datasets.load_from_disk(self.data)
                return splits[self.chosen(splits)]
            split = self.chosen(datasets.get_dataset_split_names(self.data, self.config or None))
            return datasets.load_dataset(self.data, self.config or None, split=split)
        except UserError:
            raise
        except Exception as error:
            text = f'{self.data}: cannot be opened by the package datasets: {error}'
            raise UserError(text) from error

    def _corners(self, box: np.ndarray, height: int, width: int) -> tuple[float, ...]:
        x, y, right, bottom = box * np.array([width, height] * 2) if self.relative else box
        if self.boxes == CENTER:
            x, y = x - right / 2, y - bottom / 2
        if self.boxes != XYXY:
            right, bottom = x + right, y + bottom
        return y, x, bottom, right


def _split_of(name: str) -> str:
    return next((split for start, split in _SPLITS.items() if name.startswith(start)), 'train')


def _unwrapped(feature: Any) -> Any:
    """Returns the feature of the elements of lists, of any depth."""
    while hasattr(feature, 'feature') or isinstance(feature, list):
        feature = feature[0] if isinstance(feature, list) else feature.feature
    return feature


def _columns(value: Any, keys: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the lists of objects, which may be a list of dictionaries."""
    if isinstance(value, list):
        return {key: [each[key] for each in value] for key in keys}
    lists = {key: value[key] if value else [] for key in keys}
    return {key: each for key, each in lists.items() if isinstance(each, list)}
