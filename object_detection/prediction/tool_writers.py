"""Pre-labels: predictions in the files of annotation tools, where a person corrects them."""

import base64
import collections
import contextlib
import io
import json
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from lxml import etree
from PIL import Image

from object_detection.data.formats import outlines
from object_detection.prediction.output import Item, Output, Write, add, in_xml, inside
from object_detection.prediction.prediction import Prediction
from object_detection.system import files, json_lists
from object_detection.visualization import drawing

# The controls of Label Studio, by the kinds of regions.
_CONTROLS = {
    'rectanglelabels': 'RectangleLabels',
    'brushlabels': 'BrushLabels',
    'keypointlabels': 'KeyPointLabels',
}


@contextlib.contextmanager
def labelme(output: Output) -> Iterator[Write]:
    """Files of LabelMe, labelme/NAME.json: masks as polygons, other objects as rectangles.

    Keypoints are points of the object's group. The file of a frame of a video holds the frame,
    which is no file.
    """
    folder = output.folder / 'labelme'

    def write(item: Item, sure: Prediction) -> str:
        height, width = sure.image.shape[:2]
        content = {
            'version': '5.5.0',
            'flags': {},
            'shapes': [shape for row in range(len(sure)) for shape in _shapes(output, sure, row)],
            'imagePath': _relative(item, folder),
            'imageData': None if item.clip is None else _encoded(sure.image),
            'imageHeight': height,
            'imageWidth': width,
        }
        files.write_text(folder / f'{item.name}.json', json.dumps(content, indent=1))
        return f'labelme/{item.name}.json'

    yield write


@contextlib.contextmanager
def label_studio(output: Output) -> Iterator[Write]:
    """Tasks of Label Studio with predictions, label_studio/tasks.json, and its interface.

    Objects with a mask are brush labels, others rectangles; keypoints are regions below them. A
    frame of a video is an image file in the folder of the tasks.
    """
    folder = output.folder / 'label_studio'
    folder.mkdir(exist_ok=True)
    labels: dict[str, dict[str, None]] = {
        'rectanglelabels': dict.fromkeys(map(in_xml, output.names.values()))
    }
    with json_lists.ResultsFile(folder / 'tasks.json') as file:

        def write(item: Item, sure: Prediction) -> str | None:
            frame, path = None, item.prediction.path or ''
            if item.clip is not None:
                frame, path = f'label_studio/{item.name}.png', folder / f'{item.name}.png'
                with files.replacing(path) as draft:
                    Image.fromarray(sure.image).save(draft, format='PNG')
            found = [each for row in range(len(sure)) for each in _regions(output, sure, row)]
            for each in found:
                name = each['value'][each['type']][0]
                labels.setdefault(each['type'], {}).setdefault(name)
            prediction = {
                'model_version': output.model,
                'score': float(sure.scores.min(initial=1)),
                'result': found,
            }
            file.add([{'data': {'image': _local_url(path)}, 'predictions': [prediction]}])
            return frame

        yield write
    files.write_text(folder / 'interface.xml', _interface(labels))


def _interface(labels: Mapping[str, Iterable[str]]) -> str:
    """Returns the labelling interface of Label Studio with the labels of each kind of region."""
    view = etree.Element('View')
    etree.SubElement(view, 'Image', name='image', value='$image')
    for kind, names in labels.items():
        control = etree.SubElement(view, _CONTROLS[kind], name=kind, toName='image')
        for name in names:
            etree.SubElement(control, 'Label', value=name)
    return etree.tostring(view, pretty_print=True, encoding='unicode')


def _regions(output: Output, prediction: Prediction, row: int) -> Iterator[dict[str, Any]]:
    """Yields the regions of Label Studio that one object is: it, and its keypoints."""
    height, width = prediction.size
    region_id, name = f'object_{row}', in_xml(prediction.class_names[row])
    shared = {
        'to_name': 'image',
        'original_width': width,
        'original_height': height,
        'image_rotation': 0,
        'score': float(prediction.scores[row]),
    }
    if prediction.track_ids is not None:
        shared['meta'] = {'text': [f'track {prediction.track_ids[row]}']}
    mask = prediction.full_mask(row)
    if mask is not None and mask.any():
        kind = 'brushlabels'
        value = {'format': 'rle', 'rle': list(outlines.pack_rle(np.repeat(mask * 255, 4)))}
    else:
        kind = 'rectanglelabels'
        ymin, xmin, ymax, xmax = inside(prediction)[row] / [height, width, height, width] * 100
        value = {'x': xmin, 'y': ymin, 'width': xmax - xmin, 'height': ymax - ymin, 'rotation': 0}
    yield {
        'id': region_id,
        'from_name': kind,
        'type': kind,
        **shared,
        'value': value | {kind: [name]},
    }
    kind = 'keypointlabels'
    for point, (y, x) in _points(output, prediction, row):
        value = {'x': x / width * 100, 'y': y / height * 100, 'width': 0.5, kind: [in_xml(point)]}
        own = {'id': f'{region_id}_{point}', 'parentID': region_id, 'from_name': kind, 'type': kind}
        yield {**own, **shared, 'value': value}


def _local_url(path: str | os.PathLike) -> str:
    """Returns the address of a file in the local storage of Label Studio.

    Its root is the working folder; that of a file elsewhere is the root of the file system.
    """
    full, root = os.path.abspath(path), os.getcwd()
    inside = os.path.commonpath([full, root]) == root
    name = os.path.relpath(full, root) if inside else full.lstrip(os.sep)
    quoted = urllib.parse.quote(name.replace(os.sep, '/'), errors='surrogateescape')
    return f'/data/local-files/?d={quoted}'


@contextlib.contextmanager
def cvat(output: Output) -> Iterator[Write]:
    """Annotations of CVAT: cvat/annotations.xml of all images, and cvat/NAME.xml of each video.

    Both are "CVAT for images 1.1", with boxes or masks, and keypoints as points of their group. A
    video whose objects are tracked is "CVAT for video 1.1": boxes alone.
    """
    folder = output.folder / 'cvat'
    folder.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        opened: dict[str, Any] = {}
        tracks: dict[str, tuple[tuple[int, int], dict[int, _CvatTrack]]] = {}

        def write(item: Item, sure: Prediction) -> None:
            if item.clip is not None and sure.track_ids is not None:
                _, own = tracks.setdefault(item.clip_name, (sure.size, {}))
                for track_id, box, name in zip(
                    sure.track_ids.tolist(), inside(sure), sure.class_names, strict=True
                ):
                    track = own.setdefault(track_id, _CvatTrack(collections.Counter(), {}))
                    track.names[name] += 1
                    track.boxes[item.number] = box
                return
            name = item.clip_name if item.clip is not None else 'annotations'
            if name not in opened:
                opened[name] = [stack.enter_context(_cvat_file(folder / f'{name}.xml', output)), 0]
            height, width = map(str, sure.size)
            image = etree.Element('image', id=str(opened[name][1]), height=height, width=width)
            is_file = item.clip is None
            path = os.path.basename(item.prediction.path or '')
            image.set('name', in_xml(path if is_file else f'frame_{opened[name][1]:06d}'))
            for row in range(len(sure)):
                image.extend(_cvat_shapes(output, sure, row))
            opened[name][0].write(image, pretty_print=True)
            opened[name][0].flush()
            opened[name][1] += 1

        yield write
        for name, (size, own) in tracks.items():
            with _cvat_file(folder / f'{name}.xml', output, size) as file:
                for track_id, track in own.items():
                    file.write(_cvat_track(track_id, track), pretty_print=True)


class _CvatTrack(NamedTuple):
    """An object: how often it is of each class, and frame -> box [ymin, xmin, ymax, xmax]."""

    names: collections.Counter[str]
    boxes: dict[int, np.ndarray]


def _cvat_track(track_id: int, track: _CvatTrack) -> Any:
    """Returns the element of CVAT that a track is; a gap begins with a shape "outside"."""
    [(name, _)] = track.names.most_common(1)
    element = etree.Element('track', id=str(track_id), label=in_xml(name), source='auto')
    shapes = {frame: (box, '0') for frame, box in track.boxes.items()}
    for frame, box in track.boxes.items():
        shapes.setdefault(frame + 1, (box, '1'))
    for frame, (box, outside) in sorted(shapes.items()):
        ymin, xmin, ymax, xmax = (f'{side:.2f}' for side in box)
        flags = {'outside': outside, 'occluded': '0', 'keyframe': '1', 'z_order': '0'}
        sides = {'xtl': xmin, 'ytl': ymin, 'xbr': xmax, 'ybr': ymax}
        etree.SubElement(element, 'box', {'frame': str(frame), **flags, **sides})
    return element


@contextlib.contextmanager
def _cvat_file(
    path: pathlib.Path, output: Output, size: tuple[int, int] | None = None
) -> Iterator[Any]:
    """Yields a writer of elements into a file that begins with the labels.

    Its `size` is (height, width) of all frames of a video.
    """
    with (
        files.replacing(path, keeps_partial=True) as draft,
        etree.xmlfile(draft, encoding='utf-8') as file,
    ):
        file.write_declaration()
        with file.element('annotations'):
            version, meta = etree.Element('version'), etree.Element('meta')
            version.text = '1.1'
            task = etree.SubElement(meta, 'task')
            if size is not None:
                height, width = size
                add(etree.SubElement(task, 'original_size'), {'width': width, 'height': height})
            labels = etree.SubElement(task, 'labels')
            for name in output.names.values():
                add(etree.SubElement(labels, 'label'), {'name': name})
            for element in (version, meta):
                file.write(element, pretty_print=True)
            yield file


def _cvat_shapes(output: Output, prediction: Prediction, row: int) -> Iterator[Any]:
    """Yields the elements of CVAT that one object is: it, and its keypoints."""
    points = [f'{x:.2f},{y:.2f}' for _, (y, x) in _points(output, prediction, row)]
    shared = {
        'label': in_xml(prediction.class_names[row]),
        'source': 'auto',
        'occluded': '0',
        'z_order': '0',
        **({'group_id': str(row + 1)} if points else {}),
    }
    mask = prediction.full_mask(row)
    if mask is not None and mask.any():
        (top, bottom), (left, right) = (
            np.flatnonzero(mask.any(axis))[[0, -1]] + [0, 1] for axis in (1, 0)
        )
        # Runs go along the rows, and those of COCO down the columns.
        runs = outlines.encode_rle(mask[top:bottom, left:right].T)['counts']
        window = {'left': left, 'top': top, 'width': right - left, 'height': bottom - top}
        own = {
            'rle': ', '.join(map(str, runs)),
            **{key: str(value) for key, value in window.items()},
        }
        yield etree.Element('mask', {**shared, **own})
    else:
        ymin, xmin, ymax, xmax = (f'{side:.2f}' for side in inside(prediction)[row])
        yield etree.Element('box', {**shared, 'xtl': xmin, 'ytl': ymin, 'xbr': xmax, 'ybr': ymax})
    if points:
        yield etree.Element('points', {**shared, 'points': ';'.join(points)})


def _points(output: Output, prediction: Prediction, row: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the name and place, (y, x), of each keypoint of an object that is drawn."""
    shown = drawing.visible_keypoints(prediction.keypoints, prediction.keypoint_scores)
    if shown is None:
        return
    for place, point in enumerate(shown[row].astype(float)):
        is_inside = (point >= 0).all() and (point <= prediction.size).all()  # NaN is not.
        if is_inside:
            yield output.keypoint_names.get(place, str(place)), point


def _shapes(output: Output, prediction: Prediction, row: int) -> Iterator[dict[str, Any]]:
    """Yields the shapes of LabelMe that one object is: its parts, and its keypoints."""
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
        ymin, xmin, ymax, xmax = inside(prediction)[row]
        polygons = [np.array([[xmin, ymin], [xmax, ymax]])]
    name = prediction.class_names[row]
    parts = [(name, kind, points) for points in polygons]
    found = _points(output, prediction, row)
    said = f'score {prediction.scores[row]:.4f}'
    if prediction.track_ids is not None:
        said += f', track {prediction.track_ids[row]}'
    parts += [(point, 'point', place[np.newaxis, ::-1]) for point, place in found]
    for label, shape_type, points in parts:
        yield {
            'label': label,
            'points': points.astype(float).round(2).tolist(),
            'group_id': row if len(parts) > 1 else None,
            'description': said,
            'shape_type': shape_type,
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
