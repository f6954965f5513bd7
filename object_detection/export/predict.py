"""Runs a detector on image files; writes pictures and COCO results."""

import contextlib
import itertools
import os
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from object_detection.errors import UserError
from object_detection.export import loading, results
from object_detection.export.inference import read_image
from object_detection.metrics.detections import ImageDetections, coco_results
from object_detection.system import files
from object_detection.visualization import drawing

_MIN_PICTURE_SIZE = 512


class PredictionSummary(NamedTuple):
    """The result of `predict_files`.

    Attributes:
      images, detections, drawn: numbers of images, detections and drawn detections.
      problems: one sentence for each file that was left out.
      precision: what the model computes in, or was quantized to; None if it does not store it.
    """

    images: int
    detections: int
    drawn: int
    problems: list[str]
    precision: str | None


def predict_files(
    model_directory: str | os.PathLike,
    paths: Sequence[pathlib.Path],
    output_directory: str | os.PathLike,
    *,
    label_map_path: str | os.PathLike | None = None,
    min_score: float = 0.5,
    max_boxes: int = 100,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> PredictionSummary:
    """Writes a picture for each image, `detections.json` (COCO results) and `images.json`.

    `images.json` lists, for each image, `id` (the `image_id` of `detections.json`), `file_name` and
    `picture`. A file whose name is a number gets that id. All other files, and files whose number
    an earlier file has (1.jpg, 01.png), get the lowest unused numbers, in the order of `paths`.
    Pictures are called NAME.png, or NAME_2.png and so on if names are equal (a.jpg, a.png).
    Pictures of small images are enlarged by a whole number; detections are not.

    Both files are written image by image, under names that end in `.partial` until they are
    complete.

    Args:
      model_directory: a path for `loading.load`: an exported model, or the folder of a
        training.
      paths: image files.
      output_directory: created if necessary; pictures of an earlier run are replaced, and pictures
        that only an earlier `images.json` lists are deleted.
      label_map_path: names of the classes; None takes the model's. A class without a name is drawn
        as a number.
      min_score: lowest score that is drawn; the JSON holds every detection.
      max_boxes: maximum number of objects drawn in a picture.
      progress: called with the number of finished images and the total number, before each image
        and at the end.
      **options: `checkpoint`, `config` and `precision` of `loading.load`.

    Returns:
      Counts, and the files that could not be read.

    Raises:
      ValueError: if the output directory holds one of the images.
    """
    output = pathlib.Path(output_directory)
    _check_output_folder(output, paths)
    detector = loading.load(model_directory, label_map=label_map_path, **options)
    output.mkdir(parents=True, exist_ok=True)
    stems = [path.stem for path in paths]
    problems, drawn, pictures = [], 0, set()
    earlier = results.read_list(output / results.IMAGES)
    with (
        results.ResultsFile(output / results.DETECTIONS) as found,
        results.ResultsFile(output / results.IMAGES) as images,
    ):
        named = zip(paths, _image_ids(stems), _unique_names(stems), strict=True)
        for index, (path, image_id, name) in enumerate(named):
            progress(index, len(paths))
            try:
                image, encoded = read_image(path)
            except ValueError as error:
                problems.append(str(error))
                continue
            detections = detector.detect(image, encoded)
            picture = output / f'{name}.png'
            annotated = _draw(image, detections, detector.class_names, min_score, max_boxes)
            _write_picture(picture, annotated)
            pictures.add(picture.name)
            drawn += min(int(np.sum(detections.scores >= min_score)), max_boxes)
            found.add(coco_results(detections, image_id))
            images.add([{'id': image_id, 'file_name': str(path), 'picture': picture.name}])
        progress(len(paths), len(paths))
    _delete_stale(output, earlier, pictures)
    computed = detector.precision or detector.quantization
    return PredictionSummary(images.count, found.count, drawn, problems, computed)


def _draw(
    image: np.ndarray,
    detections: ImageDetections,
    names: Mapping[int, str],
    min_score: float,
    max_boxes: int,
) -> np.ndarray:
    return drawing.draw_instances(
        image,
        detections.boxes,
        detections.classes,
        scores=detections.scores,
        masks=detections.masks,
        names=names,
        min_score=min_score,
        max_boxes=max_boxes,
        # Labels on a small image would hide the objects.
        scale=max(1, _MIN_PICTURE_SIZE // max(image.shape[:2])),
    )


def _delete_stale(output: pathlib.Path, earlier: list[Any], pictures: Collection[str]) -> None:
    """Deletes pictures of an earlier run that the new `images.json` does not list."""
    kept = {name.casefold() for name in pictures}
    for entry in earlier:
        name = entry.get('picture') if isinstance(entry, dict) else None
        # Deletes only files that this command writes, and only in this folder.
        if not isinstance(name, str) or pathlib.Path(name).name != name or name[-4:] != '.png':
            continue
        if name.casefold() not in kept:
            with contextlib.suppress(OSError):
                (output / name).unlink()


def _check_output_folder(output: pathlib.Path, paths: Sequence[pathlib.Path]) -> None:
    """Refuses an output folder in which a picture could overwrite an image."""
    folder = output.resolve()
    for path in paths:
        # Checks the folder of a link and the folder of its target.
        if folder in (path.parent.resolve(), path.resolve().parent):
            raise UserError(
                'predict: the output folder must be another than that of the images, which the '
                f'pictures would overwrite. Received: output {output}, image {path}.'
            )


def _image_ids(stems: Sequence[str]) -> list[int]:
    """Returns a unique number for each name: the name itself if it is a number."""
    own = [int(stem) if stem.isdecimal() else None for stem in stems]
    taken, given = set(own), set()
    free = (number for number in itertools.count(1) if number not in taken)
    ids = []
    for number in own:
        if number is None or number in given:
            number = next(free)
        given.add(number)
        ids.append(number)
    return ids


def _unique_names(stems: Sequence[str]) -> list[str]:
    """Makes names unique by appending '_2', '_3' ... to repeated ones.

    Names that differ only in case count as equal, as they are in some file systems.
    """
    taken, given = {stem.casefold() for stem in stems}, set()
    names = []
    for stem in stems:
        name = stem
        if stem.casefold() in given:
            numbered = (f'{stem}_{number}' for number in itertools.count(2))
            name = next(name for name in numbered if name.casefold() not in taken)
        given.add(name.casefold())
        taken.add(name.casefold())
        names.append(name)
    return names


def _write_picture(path: pathlib.Path, picture: np.ndarray) -> None:
    with files.replacing(path) as draft:
        Image.fromarray(picture).save(draft, format='PNG')
