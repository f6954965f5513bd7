"""The engines of other projects, on the same objects."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.metrics.instances import Instances


def entries(images: Sequence[Instances], size: int) -> list[dict[str, Any]]:
    """Returns the objects of square images of `size` pixels as entries of a COCO file."""
    rows = []
    for image_id, found in enumerate(images, 1):
        for i, (ymin, xmin, ymax, xmax) in enumerate(found.boxes.tolist()):
            entry = {'id': len(rows) + 1, 'image_id': image_id, 'area': float(found.areas[i])}
            entry |= {'category_id': int(found.classes[i]), 'iscrowd': 0}
            entry['bbox'] = [xmin, ymin, xmax - xmin, ymax - ymin]
            if found.masks is not None:
                entry['segmentation'] = {'size': [size, size], 'counts': found.masks[i]}
            if found.keypoints is not None:
                points = found.keypoints[i][:, [1, 0, 2]]
                entry['keypoints'] = points.ravel().tolist()
                entry['num_keypoints'] = int((points[:, 2] > 0).sum())
            if found.scores is not None:
                entry['score'] = float(found.scores[i])
            if found.is_crowd is not None:
                entry['iscrowd'] = int(found.is_crowd[i])
            rows.append(entry)
    return rows


def pycocotools(
    annotated: Sequence[Instances],
    detected: Sequence[Instances],
    category_ids: Sequence[int],
    iou_type: str,
    *,
    size: int = 1,
    sigmas: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Returns the tables of pycocotools: 'precision' [T, R, K, A, M] and 'recall' [T, K, A, M]."""
    images = [{'id': n, 'height': size, 'width': size} for n in range(1, len(annotated) + 1)]
    sides = []
    with contextlib.redirect_stdout(io.StringIO()):
        for side in (annotated, detected):
            api = COCO()
            api.dataset = {'images': images, 'annotations': entries(side, size)}
            api.dataset['categories'] = [{'id': i} for i in category_ids]
            api.createIndex()
            sides.append(api)
        engine = COCOeval(*sides, iou_type)
        if sigmas is not None:
            engine.params.kpt_oks_sigmas = sigmas
        engine.evaluate()
        engine.accumulate()
    return engine.eval


class Server:
    """A program of another environment that answers lines of JSON.

    Args:
      variable: environment variable that names the Python of the environment; without it, the test
        is skipped.
      script: name of the program in this folder.
    """

    def __init__(self, variable: str, script: str):
        python = os.environ.get(variable)
        if not python:
            pytest.skip(f'needs {variable}, a Python interpreter that has the other package')
        path = pathlib.Path(__file__).with_name(script)
        self._process = subprocess.Popen(
            [python, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, problem: dict[str, Any]) -> dict[str, float]:
        """Returns the answer of the program."""
        self._process.stdin.write(json.dumps(problem) + '\n')
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, 'the program has ended; its error is above'
        return json.loads(answer)

    def close(self) -> None:
        """Ends the program."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
