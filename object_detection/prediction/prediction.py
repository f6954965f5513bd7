"""What a `Predictor` finds in an image, and what it converts to."""

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from PIL import Image

from object_detection.errors import UserError
from object_detection.metrics.detections import ImageDetections, coco_results
from object_detection.metrics.mask_pasting import paste_mask
from object_detection.system import extras
from object_detection.visualization import drawing

if TYPE_CHECKING:
    import supervision

MIN_PICTURE_SIZE = 512


@dataclasses.dataclass(frozen=True, eq=False)
class Objects:
    """The n objects found in one image or a part of it, in descending order of scores.

    Attributes:
      boxes: float32 [n, 4], [ymin, xmin, ymax, xmax] in pixels of the image.
      classes: int64 [n], ids from 1; all 1 if the model does not classify.
      scores: float32 [n], in [0, 1].
      masks: float32 [n, h, w], probabilities relative to the box; None without a mask head.
      keypoints: float32 [n, P, 2], (y, x) in pixels of the image; None without keypoints.
      keypoint_scores: float32 [n, P], in [0, 1]; None without keypoints or their scores.
    """

    boxes: np.ndarray
    classes: np.ndarray
    scores: np.ndarray
    masks: np.ndarray | None = None
    keypoints: np.ndarray | None = None
    keypoint_scores: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, row: int | slice) -> Self:
        """Returns one object, or those of a slice; iteration gives one after the other."""
        rows = np.arange(len(self))[row]  # raises IndexError, which ends an iteration
        return self.take(np.atleast_1d(rows))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by their names, without those that are None."""
        names = [field.name for field in dataclasses.fields(Objects)]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def take(self, rows: np.ndarray) -> Self:
        """Returns some of the objects.

        Args:
          rows: bool [n], or integers [m], which may be in another order.
        """
        chosen = {name: value[rows] for name, value in self.arrays().items()}
        return dataclasses.replace(self, **chosen)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Prediction(Objects):
    """The objects found in one image, with the image.

    Attributes:
      image: uint8 [H, W, 3], RGB, upright: the image that the boxes refer to.
      names: class id -> name; an id without a name stands for itself.
      path: path of the image file; None for an image that was no file.
      keypoint_edges: pairs of keypoints, indices from 0 on, between which `draw` draws lines.
    """

    image: np.ndarray
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    path: str | None = None
    keypoint_edges: Sequence[tuple[int, int]] = ()

    def __repr__(self) -> str:
        of = f' in {self.path}' if self.path else ''
        height, width = self.image.shape[:2]
        return f'<Prediction of {len(self)} objects{of}, {height} x {width} pixels>'

    def _repr_png_(self) -> bytes:
        """The picture that a notebook shows for a value."""
        buffer = io.BytesIO()
        self.draw().save(buffer, 'PNG')
        return buffer.getvalue()

    @property
    def class_names(self) -> list[str]:
        """The n names of the objects' classes."""
        return [self.names.get(class_id, str(class_id)) for class_id in self.classes.tolist()]

    @property
    def detections(self) -> ImageDetections:
        """The objects as metrics take them: boxes float64."""
        boxes = self.boxes.astype(np.float64)
        size = self.image.shape[:2]
        return ImageDetections(
            *(boxes, self.scores, self.classes, self.masks, *size),
            keypoints=self.keypoints,
            keypoint_scores=self.keypoint_scores,
        )

    def full_masks(self) -> np.ndarray | None:
        """Returns bool [n, H, W], the masks pasted into the image; None without a mask head.

        They need n times the memory of the image; `full_mask` returns one.
        """
        if self.masks is None:
            return None
        pasted = np.zeros((len(self), *self.image.shape[:2]), bool)
        for row in range(len(self)):
            pasted[row] = self.full_mask(row)
        return pasted

    def full_mask(self, row: int) -> np.ndarray | None:
        """Returns bool [H, W], the mask of one object in the image; None without a mask head."""
        if self.masks is None:
            return None
        size = self.image.shape[:2]
        return paste_mask(self.masks[row], self.boxes[row], *size).astype(bool)

    def draw(self, *, max_boxes: int = 100, min_score: float = 0.0) -> Image.Image:
        """Draws masks, boxes, keypoints, class names and scores on a copy of the image.

        Args:
          max_boxes: maximum number of objects that are drawn, in descending order of scores.
          min_score: lowest score that is drawn.

        Returns:
          A picture of the size of the image; small images are enlarged by a whole number, so that
          names are legible.
        """
        scale = max(1, MIN_PICTURE_SIZE // max(self.image.shape[:2]))
        return Image.fromarray(self.annotated(max_boxes, min_score, scale))

    def annotated(self, max_boxes: int = 100, min_score: float = 0.0, scale: int = 1) -> np.ndarray:
        """Draws as `draw`; returns uint8 [H * scale, W * scale, 3]."""
        return drawing.draw_instances(
            self.image,
            self.boxes,
            self.classes,
            scores=self.scores,
            masks=self.masks,
            keypoints=(
                None
                if self.keypoints is None
                else drawing.visible_keypoints(self.keypoints, self.keypoint_scores)
            ),
            edges=self.keypoint_edges,
            names=self.names,
            min_score=min_score,
            max_boxes=max_boxes,
            scale=scale,
        )

    def to_coco(self, image_id: int | str = 1) -> list[dict[str, Any]]:
        """Returns the entries of a COCO results file.

        Boxes are [x, y, width, height] in pixels; masks are run-length encoded; keypoints are
        [x, y, score] for each point, in one list.

        Args:
          image_id: `images.id` of the annotation file.
        """
        return coco_results(self.detections, image_id)

    def to_supervision(self) -> 'supervision.Detections':
        """Returns a `supervision.Detections`: `xyxy`, `mask`, `confidence`, `class_id`.

        The names of the classes are `data['class_name']`. Masks are pasted into the image.

        Raises:
          UserError: if the package supervision is not installed.
        """
        try:
            import supervision
        except ImportError as error:
            raise UserError(
                'to_supervision: needs the Python package supervision, which cannot be imported '
                f'({error}): {extras.install_command("supervision")}.'
            ) from error
        return supervision.Detections(
            xyxy=self.boxes[:, [1, 0, 3, 2]],
            mask=self.full_masks(),
            confidence=self.scores,
            class_id=self.classes,
            data={'class_name': np.array(self.class_names, dtype=str)},
        )


def of_path(prediction: Prediction, path: str | os.PathLike | None) -> Prediction:
    """Returns the prediction with the path of its image."""
    return dataclasses.replace(prediction, path=None if path is None else os.fspath(path))
