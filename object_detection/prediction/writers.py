"""The files that predictions are written to, and their table.

To add a format: a function or class that makes a `Writer`, and a row of `WRITERS`.
"""

import base64
import contextlib
import csv
import dataclasses
import io
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from lxml import etree
from PIL import Image

from object_detection.data.formats import outlines
from object_detection.prediction.prediction import Prediction
from object_detection.prediction.sources import Clip, VideoFile
from object_detection.system import files, json_lists

PICTURES, VIDEO, COCO = 'pictures', 'video', 'coco'
# The first eight are those of the CSV files that `tfod convert csv` reads.
_COLUMNS = ('filename', 'width', 'height', 'class', 'xmin', 'ymin', 'xmax', 'ymax')
_COLUMNS += ('score', 'class_id', 'image_id')
_NOT_IN_XML = re.compile('[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]')


@dataclasses.dataclass(frozen=True)
class Output:
    """Where and how predictions are written.

    Attributes:
      folder: the folder of all files; it exists.
      names: class id -> name.
      score_threshold: the lowest score in all files but COCO results, which have every object.
      max_boxes: maximum number of objects that are drawn in a picture.
      frames: whether pictures are written of the frames of videos, too.
    """

    folder: pathlib.Path
    names: Mapping[int, str]
    score_threshold: float
    max_boxes: int
    frames: bool


@dataclasses.dataclass(frozen=True)
class Item:
    """A prediction to be written.

    Attributes:
      prediction: what was found, of any score.
      image_id: its number in COCO results.
      name: the name of its files, without a suffix; no other item has it.
      clip: the video; None for an image file.
      clip_name: the name of the files of the video.
    """

    prediction: Prediction
    image_id: int
    name: str
    clip: Clip | None = None
    clip_name: str = ''


# Writes an item and returns the file of it alone, relative to the folder, if it has one.
Write = Callable[[Item, Prediction], str | None]
Writer = Callable[[Output], AbstractContextManager[Write]]


@contextlib.contextmanager
def pictures(output: Output) -> Iterator[Write]:
    """Annotated pictures NAME.png; small images are enlarged by a whole number."""

    def write(item: Item, sure: Prediction) -> str | None:
        if item.clip is not None and not output.frames:
            return None
        with files.replacing(output.folder / f'{item.name}.png') as draft:
            sure.draw(max_boxes=output.max_boxes).save(draft, format='PNG')
        return f'{item.name}.png'

    yield write


@contextlib.contextmanager
def video(output: Output) -> Iterator[Write]:
    """An annotated video NAME.mp4 of each video."""
    with contextlib.ExitStack() as stack:
        current: list[Any] = [None, None]

        def write(item: Item, sure: Prediction) -> None:
            if item.clip is None:
                return
            if current[0] is not item.clip:  # The same video may come twice.
                stack.close()
                path = output.folder / f'{item.clip_name}.mp4'
                file = VideoFile(stack.enter_context(files.replacing(path)), item.clip.rate)
                stack.callback(file.close)
                current[:] = item.clip, file
            current[1].add(sure.annotated(output.max_boxes))

        yield write


@contextlib.contextmanager
def coco(output: Output) -> Iterator[Write]:
    """COCO results, detections.json: every object of any score."""
    with json_lists.ResultsFile(output.folder / json_lists.DETECTIONS) as file:

        def write(item: Item, sure: Prediction) -> None:
            file.add(item.prediction.to_coco(item.image_id))

        yield write


@contextlib.contextmanager
def comma_separated(output: Output) -> Iterator[Write]:
    """A table of boxes, detections.csv; an image without objects has a line with its name."""
    with (
        files.replacing(output.folder / 'detections.csv', keeps_partial=True) as draft,
        open(draft, 'w', encoding='utf-8', errors='surrogateescape', newline='') as file,
    ):
        table = csv.writer(file)
        table.writerow(_COLUMNS)

        def write(item: Item, sure: Prediction) -> None:
            height, width = sure.image.shape[:2]
            own = [item.prediction.path, width, height]
            rows = zip(sure.class_names, sure.boxes, sure.scores, sure.classes, strict=True)
            for name, (ymin, xmin, ymax, xmax), score, class_id in rows:
                box = [f'{side:.2f}' for side in (xmin, ymin, xmax, ymax)]
                table.writerow([*own, name, *box, f'{score:.6f}', class_id, item.image_id])
            if not len(sure):
                table.writerow([*own, *[''] * 7, item.image_id])
            file.flush()

        yield write


@contextlib.contextmanager
def yolo(output: Output) -> Iterator[Write]:
    """Labels of YOLO, yolo/NAME.txt, and the names of the classes, yolo/classes.txt."""
    folder = output.folder / 'yolo'
    indices = {class_id: index for index, class_id in enumerate(sorted(output.names))}
    names = [output.names[class_id] for class_id in indices]

    def index_of(class_id: int, name: str) -> int:
        if class_id not in indices:
            indices[class_id] = len(names)
            names.append(name)
        return indices[class_id]

    def write(item: Item, sure: Prediction) -> str:
        height, width = sure.image.shape[:2]
        boxes = _inside(sure) / [height, width, height, width]
        lines = []
        rows = zip(sure.classes.tolist(), sure.class_names, boxes, strict=True)
        for class_id, name, (ymin, xmin, ymax, xmax) in rows:
            numbers = ((xmin + xmax) / 2, (ymin + ymax) / 2, xmax - xmin, ymax - ymin)
            text = ' '.join(f'{number:.6f}' for number in numbers)
            lines.append(f'{index_of(class_id, name)} {text}\n')
        files.write_text(folder / f'{item.name}.txt', ''.join(lines))
        return f'yolo/{item.name}.txt'

    yield write
    files.write_text(folder / 'classes.txt', ''.join(f'{_one_line(name)}\n' for name in names))


@contextlib.contextmanager
def labelme(output: Output) -> Iterator[Write]:
    """Files of LabelMe, labelme/NAME.json: masks as polygons, other objects as rectangles.

    That of a frame of a video holds the frame, which is no file.
    """
    folder = output.folder / 'labelme'

    def write(item: Item, sure: Prediction) -> str:
        height, width = sure.image.shape[:2]
        content = {
            'version': '5.5.0',
            'flags': {},
            'shapes': [shape for row in range(len(sure)) for shape in _shapes(sure, row)],
            'imagePath': _relative(item, folder),
            'imageData': None if item.clip is None else _encoded(sure.image),
            'imageHeight': height,
            'imageWidth': width,
        }
        files.write_text(folder / f'{item.name}.json', json.dumps(content, indent=1))
        return f'labelme/{item.name}.json'

    yield write


@contextlib.contextmanager
def voc(output: Output) -> Iterator[Write]:
    """Annotations of PASCAL VOC, voc/NAME.xml."""
    folder = output.folder / 'voc'

    def write(item: Item, sure: Prediction) -> str:
        height, width = sure.image.shape[:2]
        path = item.prediction.path or ''
        root = etree.Element('annotation')
        _add(root, {'filename': os.path.basename(path), 'path': path})
        _add(etree.SubElement(root, 'size'), {'width': width, 'height': height, 'depth': 3})
        _add(root, {'segmented': 0})
        rows = zip(sure.class_names, np.rint(_inside(sure)).astype(int), sure.scores, strict=True)
        for name, (ymin, xmin, ymax, xmax), score in rows:
            each = etree.SubElement(root, 'object')
            flags = {'pose': 'Unspecified', 'truncated': 0, 'difficult': 0}
            _add(each, {'name': name, **flags, 'confidence': f'{score:.6f}'})
            box = {'xmin': xmin, 'ymin': ymin, 'xmax': xmax, 'ymax': ymax}
            _add(etree.SubElement(each, 'bndbox'), box)
        text = etree.tostring(root, pretty_print=True, encoding='unicode')
        files.write_text(folder / f'{item.name}.xml', text)
        return f'voc/{item.name}.xml'

    yield write


WRITERS: dict[str, Writer] = {
    PICTURES: pictures,
    VIDEO: video,
    COCO: coco,
    'csv': comma_separated,
    'yolo': yolo,
    'labelme': labelme,
    'voc': voc,
}
DEFAULT = (PICTURES, VIDEO, COCO)
# The files that an item may have alone, by which those of an earlier run are known.
OWN_FILES = re.compile(r'(?:[^/\\]+\.png|yolo/[^/\\]+\.txt|labelme/[^/\\]+\.json|voc/[^/\\]+\.xml)')


def _inside(prediction: Prediction) -> np.ndarray:
    """Returns the boxes, float64 [n, 4], clipped to the image."""
    height, width = prediction.image.shape[:2]
    return np.clip(prediction.boxes.astype(np.float64), 0, [height, width, height, width])


def _shapes(prediction: Prediction, row: int) -> Iterator[dict[str, Any]]:
    """Yields the shapes of LabelMe that one object is, several if its mask has several parts."""
    polygons = []
    if prediction.masks is not None:
        # Only the part of the image around the box is traced.
        height, width = prediction.image.shape[:2]
        ymin, xmin, ymax, xmax = prediction.boxes[row]
        top, left = max(int(ymin) - 1, 0), max(int(xmin) - 1, 0)
        bottom, right = min(int(ymax) + 2, height), min(int(xmax) + 2, width)
        mask = prediction.full_mask(row)[top:bottom, left:right]
        polygons = [outer + [left, top] for outer in outlines.trace(mask).outer]
    kind = 'polygon' if polygons else 'rectangle'
    if not polygons:
        ymin, xmin, ymax, xmax = _inside(prediction)[row]
        polygons = [np.array([[xmin, ymin], [xmax, ymax]])]
    for points in polygons:
        yield {
            'label': prediction.class_names[row],
            'points': points.astype(float).round(2).tolist(),
            'group_id': row if len(polygons) > 1 else None,
            'description': f'score {prediction.scores[row]:.4f}',
            'shape_type': kind,
            'flags': {},
        }


def _encoded(image: np.ndarray) -> str:
    """Returns an image as a PNG file in base64."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, 'PNG')
    return base64.b64encode(file.getvalue()).decode()


def _relative(item: Item, folder: pathlib.Path) -> str:
    """Returns the image's path relative to a folder; the name of its picture for a frame."""
    if item.clip is not None:
        return f'../{item.name}.png'
    return os.path.relpath(item.prediction.path or '', folder)


def _add(parent: Any, values: Mapping[str, Any]) -> None:
    for tag, value in values.items():
        etree.SubElement(parent, tag).text = _NOT_IN_XML.sub('?', str(value))


def _one_line(text: str) -> str:
    return ' '.join(text.split())
