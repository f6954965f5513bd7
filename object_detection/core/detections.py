"""What a detector found in one image; loads no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from object_detection.core.fields import DetectionFields

# The arrays of objects, and the outputs of a batch that they come from.
_OUTPUTS = {
    'boxes': DetectionFields.BOXES,
    'scores': DetectionFields.SCORES,
    'classes': DetectionFields.CLASSES,
    'masks': DetectionFields.MASKS,
    'keypoints': DetectionFields.KEYPOINTS,
    'keypoint_scores': DetectionFields.KEYPOINT_SCORES,
    'embeddings': DetectionFields.EMBEDDINGS,
    'movements': DetectionFields.TEMPORAL_OFFSETS,
}
_ARRAYS = (*_OUTPUTS, 'track_ids')


@dataclasses.dataclass(frozen=True, eq=False)
class Detections:
    """The n objects found in one image, without padding, in the detector's order (best first).

    Positions are in pixels, as metrics, pictures, files and the answers of a server have them. The
    pixels of a float32 share are exact in float64, so that `shares` loses nothing.

    Attributes:
      boxes: float64 [n, 4], [ymin, xmin, ymax, xmax] in pixels of the image.
      scores: float32 [n], in [0, 1].
      classes: int64 [n], ids from 1, or None if the detector does not classify (one stage).
      size: (height, width) of the image in pixels.
      masks: float32 [n, mask height, mask width], probabilities relative to the box, or None.
      keypoints: float64 [n, P, 2], (y, x) in pixels of the image, or None.
      keypoint_scores: float32 [n, P], in [0, 1], or None.
      embeddings: float32 [n, D], of length 1, alike for the same object in other frames, or None.
      movements: float64 [n, 2], (y, x) in pixels of the image, how far an object moved since the
        frame before, or None.
      track_ids: int64 [n], numbers of objects in all frames of a video, from 1; 0 is no track. None
        unless the objects are tracked.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray | None
    size: tuple[int, int]
    masks: np.ndarray | None = None
    keypoints: np.ndarray | None = None
    keypoint_scores: np.ndarray | None = None
    embeddings: np.ndarray | None = None
    movements: np.ndarray | None = None
    track_ids: np.ndarray | None = None

    @classmethod
    def from_batch(
        cls, outputs: Mapping[str, Any], sizes: Any, *, label_id_offset: int = 1
    ) -> 'list[Detections]':
        """Splits a batch into its images and drops the padding.

        Args:
          outputs: what `postprocess` or an export returns, arrays or tensors by the keys of
            `DetectionFields`: boxes [B, T, 4] normalized to the true image, scores [B, T], classes
            [B, T], masks [B, T, mask height, mask width], keypoints [B, T, P, 2] normalized to the
            true image, their scores [B, T, P], embeddings [B, T, D], movements [B, T, 2] as shares
            of the true image, num_detections [B]; classes and what follows keypoints, masks and
            keypoints may be absent.
          sizes: int [B, 2], (height, width) of the original images.
          label_id_offset: what to add to the classes to make them 1-based: 1 for `postprocess`, 0
            for an export.
        """
        found = {
            name: np.asarray(outputs[key])
            for name, key in _OUTPUTS.items()
            if outputs.get(key) is not None
        }
        counts = np.asarray(outputs[DetectionFields.NUM_DETECTIONS]).astype(int)
        images = []
        for row, (count, (height, width)) in enumerate(zip(counts, sizes, strict=True)):
            size = int(height), int(width)
            rows = {name: value[row][:count] for name, value in found.items()}
            rows['boxes'] = boxes_to_absolute(rows['boxes'], *size)
            classes = rows.pop('classes', None)
            if classes is not None:
                classes = classes.astype(np.int64) + label_id_offset
            if 'masks' in rows:
                # Numbers of body parts, of CenterNet's DensePose, all belong to the object.
                rows['masks'] = np.minimum(rows['masks'], 1.0)
            for name in {'keypoints', 'movements'} & rows.keys():
                rows[name] = points_to_absolute(rows[name], *size)
            images.append(Detections(**rows, classes=classes, size=size))
        return images

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, row: int | slice) -> Self:
        """Returns one object, or those of a slice; iteration gives one after the other."""
        rows = np.arange(len(self))[row]  # raises IndexError, which ends an iteration
        return self.take(np.atleast_1d(rows))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by their names, without those that are None."""
        return {name: value for name in _ARRAYS if (value := getattr(self, name)) is not None}

    def take(self, rows: np.ndarray) -> Self:
        """Returns some of the objects.

        Args:
          rows: bool [n], or integers [m], which may be in another order.
        """
        chosen = {name: value[rows] for name, value in self.arrays().items()}
        return dataclasses.replace(self, **chosen)

    def above(self, threshold: float) -> Self:
        """Returns the objects with at least a score."""
        return self.take(self.scores >= threshold)

    def best(self, count: int | None = None) -> Self:
        """Returns the `count` objects with the highest scores, best first; None returns all."""
        return self.take(np.argsort(-self.scores, kind='stable')[:count])

    def ids(self) -> np.ndarray:
        """Returns the classes; all are 1 if the detector does not classify."""
        return np.ones(len(self), np.int64) if self.classes is None else self.classes

    def shares(self) -> np.ndarray:
        """Returns the boxes normalized to the image, float64 [n, 4]."""
        return self.boxes / np.array(self.size * 2, np.float64)


def boxes_to_absolute(boxes_normalized: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns boxes [n, 4] of the unit frame in pixels, float64."""
    sizes = np.array([height, width, height, width], np.float64)
    return np.asarray(boxes_normalized, np.float64).reshape(-1, 4) * sizes


def points_to_absolute(points_normalized: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns points [n, P, 2], (y, x), of the unit frame in pixels, float64."""
    return np.asarray(points_normalized, np.float64) * np.array([height, width], np.float64)
