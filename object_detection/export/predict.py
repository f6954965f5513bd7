"""Predicts on image files with an exported model; writes pictures and COCO results."""

import itertools
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from object_detection.data import label_map
from object_detection.evaluation.detections import coco_results
from object_detection.export.inference import SavedDetector, read_image
from object_detection.visualization import drawing

_MIN_PICTURE_SIZE = 512


class PredictionSummary(NamedTuple):
    """What `predict_files` did.

    Attributes:
      images, detections, drawn: counts.
      problems: one sentence for each file that was left out.
      precision: that the model computes in; None where it does not say.
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
) -> PredictionSummary:
    """Writes a picture for each image, `detections.json` (COCO results) and `images.json`.

    `images.json` lists, for each image, `id` (the `image_id` of `detections.json`), `file_name` and
    `picture`. A file whose name is a number has that id; all others, and files whose number an
    earlier one has (1.jpg, 01.png), get the lowest numbers that no file has, in the order of
    `paths`. Pictures are called NAME.png, and NAME_2.png and so on where names are equal (a.jpg,
    a.png). Pictures of small images are enlarged by a whole number; detections are not.

    Args:
      model_directory: an exported model.
      paths: image files.
      output_directory: created; pictures of an earlier run are replaced.
      label_map_path: names of the classes; a class that it lacks, and all without it, are drawn as
        numbers.
      min_score: lowest score that is drawn; the JSON holds every detection.
      max_boxes: most objects drawn in a picture.
      progress: called with the numbers of images done and of all, before each image and at the end.

    Returns:
      Counts, and the files that could not be read.

    Raises:
      ValueError: if the output directory holds one of the images.
    """
    output = pathlib.Path(output_directory)
    _check_apart(output, paths)
    detector = SavedDetector(model_directory)
    names = {}
    if label_map_path is not None:
        names = {c['id']: c['name'] for c in label_map.load(label_map_path).categories}
    output.mkdir(parents=True, exist_ok=True)
    stems = [path.stem for path in paths]
    results, images, problems, drawn = [], [], [], 0
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
        images.append({'id': image_id, 'file_name': str(path), 'picture': picture.name})
        results += coco_results(detections, image_id)
        drawn += min(int(np.sum(detections.scores >= min_score)), max_boxes)
        annotated = drawing.draw_instances(
            image,
            detections.boxes,
            detections.classes,
            scores=detections.scores,
            masks=detections.masks,
            names=names,
            min_score=min_score,
            max_boxes=max_boxes,
            # Labels on a small image would hide what they name.
            scale=max(1, _MIN_PICTURE_SIZE // max(image.shape[:2])),
        )
        _write_picture(picture, annotated)
    progress(len(paths), len(paths))
    _write_json(output / 'detections.json', results)
    _write_json(output / 'images.json', images)
    return PredictionSummary(len(images), len(results), drawn, problems, detector.precision)


def _check_apart(output: pathlib.Path, paths: Sequence[pathlib.Path]) -> None:
    """Refuses an output folder in which a picture could take the place of an image."""
    folder = output.resolve()
    for path in paths:
        # A link's own folder matters as much as that of the file behind it.
        if folder in (path.parent.resolve(), path.resolve().parent):
            raise ValueError(
                'predict: the output folder must be another than that of the images, which the '
                f'pictures would overwrite. Received: output {output}, image {path}.'
            )


def _image_ids(stems: Sequence[str]) -> list[int]:
    """Returns a number for each name, no two alike: the name itself where it is a number."""
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
    """Returns the names with '_2', '_3' ... after those that occurred before.

    Upper and lower case count as equal, as they do in some file systems.
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
    draft = path.with_name(f'{path.name}.partial')
    Image.fromarray(picture).save(draft, format='PNG')
    draft.replace(path)


def _write_json(path: pathlib.Path, value: list) -> None:
    draft = path.with_suffix('.json.partial')
    draft.write_text(json.dumps(value))
    draft.replace(path)
