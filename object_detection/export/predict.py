"""Predicts on image files with an exported model; writes pictures and COCO results."""

import json
import os
import pathlib
from collections.abc import Sequence
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
    """

    images: int
    detections: int
    drawn: int
    problems: list[str]


def predict_files(
    model_directory: str | os.PathLike,
    paths: Sequence[pathlib.Path],
    output_directory: str | os.PathLike,
    *,
    label_map_path: str | os.PathLike | None = None,
    min_score: float = 0.5,
    max_boxes: int = 100,
) -> PredictionSummary:
    """Writes NAME.png for each image, `detections.json` (COCO results) and `images.json`.

    Pictures of small images are enlarged by a whole number; detections are not.

    Args:
      model_directory: an exported model.
      paths: image files.
      output_directory: created.
      label_map_path: names of the classes; numbers are drawn without it.
      min_score: lowest score that is drawn; the JSON holds every detection.
      max_boxes: most objects drawn in a picture.

    Returns:
      Counts, and the files that could not be read.
    """
    detector = SavedDetector(model_directory)
    names = {}
    if label_map_path is not None:
        names = {c['id']: c['name'] for c in label_map.load(label_map_path).categories}
    output = pathlib.Path(output_directory)
    output.mkdir(parents=True, exist_ok=True)
    results, images, problems, drawn = [], [], [], 0
    for position, path in enumerate(paths, start=1):
        try:
            image, encoded = read_image(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        detections = detector.detect(image, encoded)
        image_id = int(path.stem) if path.stem.isdecimal() else position
        picture = output / f'{path.stem}.png'
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
        Image.fromarray(annotated).save(picture)
    _write_json(output / 'detections.json', results)
    _write_json(output / 'images.json', images)
    return PredictionSummary(len(images), len(results), drawn, problems)


def _write_json(path: pathlib.Path, value: list) -> None:
    draft = path.with_suffix('.json.partial')
    draft.write_text(json.dumps(value))
    draft.replace(path)
