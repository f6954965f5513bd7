"""Odd images for comparisons of COCO's metrics, as a strategy of hypothesis."""

import numpy as np
from hypothesis import strategies as st
from pycocotools import mask as mask_api

from object_detection.metrics.instances import Instances

SIZE = 40
CATEGORIES = (2, 3, 7)

# Boxes on a grid, so that many are equal and overlaps lie exactly on thresholds.
_BOXES = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.sampled_from([4, 8, 10, 20]), st.sampled_from([5, 20])
).map(lambda b: (5.0 * b[0], 5.0 * b[1], 5.0 * b[0] + b[2], 5.0 * b[1] + b[3]))
# Some lie exactly on the edges of the ranges.
_AREAS = st.sampled_from([20.0, 32.0**2, 50.0**2, 96.0**2, 1e5])
_SCORES = st.sampled_from([0.125, 0.5, 0.75, 1.0])
_OBJECTS = st.tuples(_BOXES, st.sampled_from(CATEGORIES), _AREAS, st.booleans())
# Categories without objects, and objects without detections, occur too.
_DETECTIONS = st.tuples(_BOXES, st.sampled_from(CATEGORIES), _SCORES)
_FEW = st.lists(_DETECTIONS, max_size=15)
# More than count: 100 of one category.
_MANY = st.tuples(_BOXES, st.integers(101, 110)).map(
    lambda each: [(each[0], 2, 0.5)] * (each[1] - 1) + [(each[0], 2, 0.75)]
)
_IMAGES = st.tuples(st.lists(_OBJECTS, max_size=6), st.one_of(_FEW, _FEW, _FEW, _MANY)).map(
    lambda sides: (_annotated(sides[0]), _detected(sides[1]))
)

# Lists of (annotated, detected): crowds, ignored areas, equal scores, empty sides.
IMAGES = st.lists(_IMAGES, min_size=1, max_size=4)


def _annotated(rows) -> Instances:
    boxes, classes, areas, crowds = zip(*rows, strict=True) if rows else ((), (), (), ())
    instances = _instances(boxes, classes, np.array(areas, np.float64))
    return instances._replace(is_crowd=np.array(crowds, bool))


def _detected(rows) -> Instances:
    boxes, classes, scores = zip(*rows, strict=True) if rows else ((), (), ())
    instances = _instances(boxes, classes, None)
    return instances._replace(scores=np.array(scores, np.float32))


def _instances(boxes, classes, areas) -> Instances:
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    masks = []
    for ymin, xmin, ymax, xmax in boxes.astype(int):
        mask = np.zeros((SIZE, SIZE), np.uint8, order='F')
        mask[ymin:ymax, xmin:xmax] = 1
        masks.append(mask_api.encode(mask)['counts'])
    if areas is None:
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return Instances(boxes, np.array(classes, np.int64), areas, masks)
