"""An annotation format: a text file with a box on each line, `image class xmin ymin xmax ymax`."""

import dataclasses
import os
from collections.abc import Iterator

from object_detection.data import file_access
from object_detection.data.annotated_image import ImageAnnotations, Provided
from object_detection.data.formats import shapes
from object_detection.data.formats.formats import Format
from object_detection.data.formats.source import (
    DataSet,
    ImageEntry,
    Source,
    SourceReader,
    label_of,
    number_classes,
    option,
)
from object_detection.errors import UserError

_MAX_BYTES = 1 << 30
_SIDES = ('xmin', 'ymin', 'xmax', 'ymax')


@dataclasses.dataclass(frozen=True)
class LinesSource(Source):
    """A data set; its fields with `option` are the options of `tfod convert lines`."""

    annotations_file: str = option('', 'File of boxes.', flag='annotations', required=True)

    def open(self, files, label_map) -> DataSet:
        """Finds the images and the classes."""
        entries = list(self.entries(files))
        names = {name for entry in entries for name, *_ in entry.annotations}
        labels = number_classes(names, label_map, sort=True)
        return DataSet(LinesReader(self, labels), len(entries), labels)

    def entries(self, files) -> Iterator[ImageEntry]:
        """Yields the images."""
        images: dict[str, ImageEntry] = {}
        text = files.read(self.annotations_file, _MAX_BYTES).decode()
        for number, line in enumerate(text.splitlines(), 1):
            name, *fields = line.split()
            if len(fields) != 5:
                raise UserError(
                    f'{self.annotations_file}, line {number}: expected 6 fields. '
                    f'Received: {len(fields) + 1}.'
                )
            image = {'id': name, 'file_name': name}
            images.setdefault(name, ImageEntry(image, [])).annotations.append(fields)
        yield from images.values()


@dataclasses.dataclass(frozen=True)
class LinesReader(SourceReader[LinesSource]):
    """Reads images and their objects, in workers."""

    provided = Provided()

    def annotations(self, entry, files) -> ImageAnnotations:
        """Returns the annotations of an image."""
        name = entry.image['file_name']
        found = file_access.image_paths(os.path.dirname(self.source.annotations_file), name)
        return ImageAnnotations(
            file_name=name,
            source_id=name,
            annotations=[(f'box {i}', box) for i, box in enumerate(entry.annotations)],
            paths=found.paths,
            path_note=found.note,
        )

    def read_object(self, annotation, file, *, rasterize=True):
        """Returns an object."""
        name, *corners = annotation
        box = [shapes.number(value, side) for value, side in zip(corners, _SIDES, strict=True)]
        return shapes.of_polygons(label_of(name, self.labels), [shapes.rectangle(*box)], file)


LINES = Format(
    LinesSource,
    'lines: a text file with a box on each line',
    'Without --label_map, the classes are numbered from 1 on in the order of the alphabet.',
    numbers_used=True,
)
