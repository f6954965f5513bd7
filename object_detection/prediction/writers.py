"""The files that predictions are written to, and their table.

To add a format: a function or class that makes a `Writer`, and a row of `WRITERS`.
"""

import contextlib
import csv
import os
import re
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from lxml import etree

from object_detection.prediction import tool_writers
from object_detection.prediction.output import Item, Output, Write, Writer, add, inside
from object_detection.prediction.prediction import Prediction
from object_detection.prediction.sources import VideoFile
from object_detection.system import files, json_lists

PICTURES, VIDEO, COCO, MOT = 'pictures', 'video', 'coco', 'mot'
# The first eight are those of the CSV files that `tfod convert csv` reads.
_COLUMNS = ('filename', 'width', 'height', 'class', 'xmin', 'ymin', 'xmax', 'ymax')
_COLUMNS += ('score', 'class_id', 'image_id')


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
        table.writerow([*_COLUMNS, *(['track_id'] if output.tracks else [])])

        def write(item: Item, sure: Prediction) -> None:
            height, width = sure.image.shape[:2]
            own = [item.prediction.path, width, height]
            tracks = [[each] for each in sure.track_ids] if output.tracks else [[]] * len(sure)
            found = (sure.class_names, sure.boxes, sure.scores, sure.classes, tracks)
            for name, (ymin, xmin, ymax, xmax), score, class_id, track in zip(*found, strict=True):
                box = [f'{side:.2f}' for side in (xmin, ymin, xmax, ymax)]
                table.writerow([*own, name, *box, f'{score:.6f}', class_id, item.image_id, *track])
            if not len(sure):
                none = [''] if output.tracks else []
                table.writerow([*own, *[''] * 7, item.image_id, *none])
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
        boxes = inside(sure) / [height, width, height, width]
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
def voc(output: Output) -> Iterator[Write]:
    """Annotations of PASCAL VOC, voc/NAME.xml."""
    folder = output.folder / 'voc'

    def write(item: Item, sure: Prediction) -> str:
        height, width = sure.image.shape[:2]
        path = item.prediction.path or ''
        root = etree.Element('annotation')
        add(root, {'filename': os.path.basename(path), 'path': path})
        add(etree.SubElement(root, 'size'), {'width': width, 'height': height, 'depth': 3})
        add(root, {'segmented': 0})
        rows = zip(sure.class_names, np.rint(inside(sure)).astype(int), sure.scores, strict=True)
        for name, (ymin, xmin, ymax, xmax), score in rows:
            each = etree.SubElement(root, 'object')
            flags = {'pose': 'Unspecified', 'truncated': 0, 'difficult': 0}
            add(each, {'name': name, **flags, 'confidence': f'{score:.6f}'})
            box = {'xmin': xmin, 'ymin': ymin, 'xmax': xmax, 'ymax': ymax}
            add(etree.SubElement(each, 'bndbox'), box)
        text = etree.tostring(root, pretty_print=True, encoding='unicode')
        files.write_text(folder / f'{item.name}.xml', text)
        return f'voc/{item.name}.xml'

    yield write


@contextlib.contextmanager
def mot(output: Output) -> Iterator[Write]:
    """Tracks in the format of MOT Challenge, mot/NAME.txt of each video or folder of frames."""
    folder = output.folder / 'mot'
    folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        opened: dict[str, IO[str]] = {}

        def write(item: Item, sure: Prediction) -> None:
            if item.sequence not in opened:
                path = folder / f'{item.sequence}.txt'
                draft = stack.enter_context(files.replacing(path, keeps_partial=True))
                file = open(draft, 'w', encoding='utf-8')  # noqa: SIM115
                opened[item.sequence] = stack.enter_context(file)
            rows = zip(sure.track_ids, sure.boxes.astype(float), sure.scores, strict=True)
            for track_id, (ymin, xmin, ymax, xmax), score in rows:
                box = ','.join(f'{each:.2f}' for each in (xmin, ymin, xmax - xmin, ymax - ymin))
                line = f'{item.number + 1},{track_id},{box},{score:.4f},-1,-1,-1\n'
                opened[item.sequence].write(line)
            opened[item.sequence].flush()

        yield write


WRITERS: dict[str, Writer] = {
    PICTURES: pictures,
    VIDEO: video,
    COCO: coco,
    'csv': comma_separated,
    'yolo': yolo,
    'labelme': tool_writers.labelme,
    'label_studio': tool_writers.label_studio,
    'cvat': tool_writers.cvat,
    'voc': voc,
    MOT: mot,
}
DEFAULT = (PICTURES, VIDEO, COCO)
DEFAULT_OF_TRACKS = (*DEFAULT, MOT)
# The files that an item may have alone, by which those of an earlier run are known.
OWN_FILES = re.compile(
    r'(?:(?:label_studio/)?[^/\\]+\.png|yolo/[^/\\]+\.txt|labelme/[^/\\]+\.json|voc/[^/\\]+\.xml)'
)


def _one_line(text: str) -> str:
    return ' '.join(text.split())
