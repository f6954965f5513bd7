"""What a `Predictor` finds in an image, and what it converts to."""

import dataclasses
import io
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from object_detection.core.detections import Detections
from object_detection.data.label_map import LabelMap
from object_detection.data.tiff.tiff_files import LargeImage
from object_detection.errors import UserError
from object_detection.metrics.detections import coco_results
from object_detection.metrics.mask_pasting import paste_mask
from object_detection.system import extras
from object_detection.visualization import drawing

if TYPE_CHECKING:
    import supervision

# Longest side of the picture of a large image.
_DRAWN_SIDE = 4096
# And of a picture in a notebook, which stores it.
_SHOWN_SIDE = 1280


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Prediction(Detections):
    """The objects found in one image, with the image, in descending order of scores.

    Attributes:
      boxes: float32 [n, 4], [ymin, xmin, ymax, xmax] in pixels of the image.
      classes: int64 [n], ids from 1; all 1 if the model does not classify.
      scores: float32 [n], in [0, 1].
      masks: float32 [n, h, w], probabilities relative to the box; None without a mask head.
      keypoints: float32 [n, P, 2], (y, x) in pixels of the image; None without keypoints.
      keypoint_scores: float32 [n, P], in [0, 1]; None without keypoints or their scores.
      embeddings: float32 [n, D], of a CenterNet with a track head; None of others.
      movements: float32 [n, 2], (y, x) in pixels of the image, of a CenterNet with temporal
        offsets: how far objects moved since the frame before; None of others.
      track_ids: int64 [n], numbers of objects in all frames of a video, from 1; None of images.
      image: uint8 [H, W, 3], RGB, upright: the image that the boxes refer to; or a `LargeImage`,
        of which `image[top:bottom, left:right]` reads a part.
      names: class id -> name; an id without a name stands for itself.
      path: path of the image file; None for an image that was no file.
      keypoint_edges: pairs of keypoints, indices from 0 on, between which `draw` draws lines.
    """

    image: np.ndarray | LargeImage
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    path: str | None = None
    keypoint_edges: Sequence[tuple[int, int]] = ()

    def __repr__(self) -> str:
        of = f' in {self.path}' if self.path else ''
        height, width = self.size
        objects = '1 object' if len(self) == 1 else f'{len(self)} objects'
        return f'<Prediction of {objects}{of}, {height} x {width} pixels>'

    def _repr_png_(self) -> bytes:
        """The picture that a notebook shows for a value; a large one is reduced."""
        buffer, picture = io.BytesIO(), self.draw()
        picture.thumbnail((_SHOWN_SIDE, _SHOWN_SIDE))
        picture.save(buffer, 'PNG')
        return buffer.getvalue()

    @property
    def class_names(self) -> list[str]:
        """The n names of the objects' classes."""
        return [self.names.get(class_id, str(class_id)) for class_id in self.classes.tolist()]

    def filter(
        self, *, classes: int | str | Collection[int | str] | None = None, min_score: float = 0.0
    ) -> 'Prediction':
        """Returns the objects of some classes, with at least a score.

        Args:
          classes: names or ids, or one of them; None takes all.
          min_score: the lowest score.

        Raises:
          UserError: for a class that the model does not have.
        """
        found = self.above(min_score)
        if classes is None:
            return found
        listed = [classes] if isinstance(classes, int | str) else classes
        categories = [{'id': id_, 'name': name} for id_, name in self.names.items()]
        labels = LabelMap(categories, {}, {name: id_ for id_, name in self.names.items()})
        return found.take(np.isin(found.ids(), class_ids(listed, labels)))

    def full_masks(self) -> np.ndarray | None:
        """Returns bool [n, H, W], the masks pasted into the image; None without a mask head.

        They need n times the memory of the image; `full_mask` returns one.
        """
        if self.masks is None:
            return None
        pasted = np.zeros((len(self), *self.size), bool)
        for row in range(len(self)):
            pasted[row] = self.full_mask(row)
        return pasted

    def full_mask(self, row: int) -> np.ndarray | None:
        """Returns bool [H, W], the mask of one object in the image; None without a mask head."""
        if self.masks is None:
            return None
        return paste_mask(self.masks[row], self.boxes[row], *self.size).astype(bool)

    def draw(self, *, max_boxes: int = 100, min_score: float = 0.0) -> Image.Image:
        """Draws masks, boxes, keypoints, class names and scores on a copy of the image.

        Args:
          max_boxes: maximum number of objects that are drawn, in descending order of scores.
          min_score: lowest score that is drawn.

        Returns:
          A picture of the size of the image; small images are enlarged by a whole number, so that
          names are legible, and a `LargeImage` is reduced to 4096 pixels.
        """
        return Image.fromarray(self.annotated(max_boxes, min_score, None))

    def annotated(
        self, max_boxes: int = 100, min_score: float = 0.0, scale: int | None = 1
    ) -> np.ndarray:
        """Draws as `draw`, which has the scale None; returns uint8 [H * scale, W * scale, 3]."""
        image, objects = self.image, self
        if isinstance(image, LargeImage):
            # Commands import this module, and no TensorFlow before they need it.
            from object_detection.prediction import merging
            from object_detection.runtime import images

            image = images.picture(image.reduced(_DRAWN_SIDE), image.value_range)
            scale_down = (image.shape[0] / self.size[0], image.shape[1] / self.size[1])
            objects = merging.moved(self, (0, 0), scale_down, image.shape[:2])
        return drawing.draw_detections(
            image,
            objects,
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
        return coco_results(self, image_id)

    def to_supervision(self) -> 'supervision.Detections':
        """Returns a `supervision.Detections`: `xyxy`, `mask`, `confidence`, `class_id`.

        The names of the classes are `data['class_name']`; of tracked objects, `tracker_id` is
        `track_ids`. Masks are pasted into the image.

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
            tracker_id=self.track_ids,
            data={'class_name': np.array(self.class_names, dtype=str)},
        )


def class_ids(classes: Collection[int | str], labels: LabelMap) -> list[int]:
    """Returns the ids of classes that are given as ids or names, numbers in text among them.

    Raises:
      UserError: for a name that no class has, or, if the names are known, for an id of no class.
    """
    names = labels.names
    ids = {text: number for text, number in labels.text_to_id.items() if number > 0}
    found = []
    for each in classes:
        text = str(each)
        number = int(text) if text.isdecimal() else None
        if text in ids:
            found.append(ids[text])
        elif number is not None and (number in names or not names):
            found.append(number)
        else:
            known = ', '.join(f'{i} {name}' for i, name in list(names.items())[:20])
            raise UserError(
                f'classes: expected ids or names of the model ({known or "which has no names"}'
                f'{", ..." if len(names) > 20 else ""}). Received: {text!r}.'
            )
    return found


def of_path(prediction: Prediction, path: str | os.PathLike | None) -> Prediction:
    """Returns the prediction with the path of its image."""
    return dataclasses.replace(prediction, path=None if path is None else os.fspath(path))
