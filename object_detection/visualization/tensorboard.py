"""Writes scalars and pictures of inputs and detections for TensorBoard."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.detections import Detections, boxes_to_absolute
from object_detection.core.fields import InputFields
from object_detection.visualization import drawing

# Smaller pictures are enlarged so that labels are readable.
_READABLE_SIZE = 320


@dataclasses.dataclass(frozen=True)
class PictureStyle:
    """What is drawn of detections.

    Attributes:
      min_score, max_boxes: lowest score and maximum number of detections.
      shows_scores, shows_labels: whether scores and names of classes are drawn.
      groundtruth_color: colour in which the boxes of the ground truth are drawn over the
        detections; None does not draw them there.
      keypoint_edges: pairs of keypoints between which lines are drawn, of the ground truth too.
    """

    min_score: float = 0.5
    max_boxes: int = 20
    shows_scores: bool = True
    shows_labels: bool = True
    groundtruth_color: str | None = None
    keypoint_edges: Sequence[tuple[int, int]] = ()


DEFAULT_STYLE = PictureStyle()


class EventWriter:
    """Writes TensorBoard events.

    Args:
      directory: folder of the event file; None writes nothing.

    Attributes:
      is_open: whether anything is written.
    """

    def __init__(self, directory: str | None):
        self.is_open = directory is not None
        self._writer = (
            tf.summary.create_noop_writer()
            if directory is None
            else tf.summary.create_file_writer(directory)
        )

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def pictures(self, name: str, pictures: Sequence[np.ndarray], step: int) -> None:
        """Writes each of `pictures`, uint8 [H, W, 3] of any size, as `name_<index>`."""
        with self._writer.as_default(step=step):
            for index, picture in enumerate(pictures):
                tf.summary.image(f'{name}_{index}', picture[np.newaxis])
        self._writer.flush()

    def curves(self, counts: Mapping[str, np.ndarray], step: int) -> None:
        """Writes curves of precision over recall for TensorBoard's PR Curves.

        Args:
          counts: label -> int64 [3, S], the numbers of true positives, false positives and missed
            objects, if only detections with at least a score count, for S scores evenly spaced
            from 0 to 1.
          step: training step.
        """
        # Imported here, since this takes time and only runs that write events need it.
        from tensorboard.plugins.pr_curve import metadata

        with self._writer.as_default(step=step):
            for label, (found, wrong, missed) in counts.items():
                # Detection has no true negatives. Without a detection nothing is wrong.
                precision = np.where(found + wrong > 0, found / np.maximum(found + wrong, 1), 1.0)
                recall = found / np.maximum(found + missed, 1)
                rows = [found, wrong, np.zeros_like(found), missed, precision, recall]
                tf.summary.write(
                    f'precision_recall/{label}',
                    np.array(rows, np.float32),
                    metadata=metadata.create_summary_metadata(label, '', len(found)),
                )
        self._writer.flush()

    def hyperparameters(self, values: Mapping[str, bool | float | str], trial: str) -> None:
        """Writes the row of a training for TensorBoard's HParams.

        Args:
          values: name -> value.
          trial: name of the training, whose metrics in all folders with that name are one row.
        """
        # Imported here, since this takes time and only runs that write events need it.
        from tensorboard.plugins.hparams import summary_v2

        text = summary_v2.hparams_pb(values, trial_id=trial).SerializeToString()
        with self._writer.as_default(step=0):
            tf.summary.experimental.write_raw_pb(text)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def input_pictures(
    batch: Mapping[str, np.ndarray],
    names: Mapping[int, str] | None = None,
    limit: int = 3,
    keypoint_edges: Sequence[tuple[int, int]] = (),
) -> list[np.ndarray]:
    """Draws the images of a batch as the model sees them, with their ground truth.

    Args:
      batch: a batch of a dataset, as NumPy arrays.
      names: 1-based class id -> name.
      limit: maximum number of images to draw.
      keypoint_edges: pairs of keypoints between which lines are drawn.

    Returns:
      Pictures uint8 [height, width, 3] without padding.
    """
    count = min(limit, len(batch[InputFields.IMAGE]))
    return [_draw_groundtruth(batch, index, names, keypoint_edges) for index in range(count)]


def detection_pictures(
    batch: Mapping[str, np.ndarray],
    detections: Mapping[str, np.ndarray],
    names: Mapping[int, str] | None = None,
    *,
    limit: int,
    style: PictureStyle = DEFAULT_STYLE,
) -> list[np.ndarray]:
    """Draws ground truth and detections side by side; arguments as `input_pictures`.

    Args:
      detections: the output of `postprocess`, as NumPy arrays.
      style: what is drawn of the detections.
    """
    pictures = []
    for index in range(min(limit, len(batch[InputFields.IMAGE]))):
        image = true_image(batch, index)
        own = {name: value[index : index + 1] for name, value in detections.items()}
        (objects,) = Detections.from_batch(own, [image.shape[:2]])
        found = drawing.draw_detections(
            image,
            objects,
            edges=style.keypoint_edges,
            names=names if style.shows_labels else dict.fromkeys(objects.ids().tolist(), ''),
            min_score=style.min_score,
            max_boxes=style.max_boxes,
            scale=_enlargement(image.shape),
            shows_scores=style.shows_scores,
        )
        if style.groundtruth_color is not None:
            boxes = _groundtruth_boxes(batch, index) * _enlargement(image.shape)
            found = drawing.outline_boxes(found, boxes, style.groundtruth_color)
        truth = _draw_groundtruth(batch, index, names, style.keypoint_edges)
        pictures.append(drawing.side_by_side(truth, found))
    return pictures


def true_image(batch: Mapping[str, np.ndarray], index: int) -> np.ndarray:
    """Cuts the padding, and channels after the first three, off one image of a batch.

    Returns:
      uint8 [height, width, 3], or [height, width, 1] for grey images.
    """
    height, width = batch[InputFields.TRUE_IMAGE_SHAPE][index][:2]
    image = batch[InputFields.IMAGE][index][:height, :width, :3]
    return np.clip(np.round(image), 0, 255).astype(np.uint8)


def _draw_groundtruth(
    batch: Mapping[str, np.ndarray],
    index: int,
    names: Mapping[int, str] | None,
    keypoint_edges: Sequence[tuple[int, int]],
) -> np.ndarray:
    image = true_image(batch, index)
    count = int(batch[InputFields.NUM_GROUNDTRUTH_BOXES][index])
    classes = batch[InputFields.GROUNDTRUTH_CLASSES][index, :count].argmax(axis=-1) + 1
    shape = batch[InputFields.IMAGE].shape[1:]
    return drawing.draw_instances(
        image,
        _groundtruth_boxes(batch, index),
        classes,
        masks=_masks(batch, index, count, image.shape),
        keypoints=_visible_keypoints(batch, index, count, shape),
        edges=keypoint_edges,
        names=names,
        max_boxes=count,
        scale=_enlargement(image.shape),
    )


def _groundtruth_boxes(batch: Mapping[str, np.ndarray], index: int) -> np.ndarray:
    """Boxes of one image, float [count, 4] in pixels."""
    count = int(batch[InputFields.NUM_GROUNDTRUTH_BOXES][index])
    boxes = batch[InputFields.GROUNDTRUTH_BOXES][index, :count]
    return boxes_to_absolute(boxes, *batch[InputFields.IMAGE].shape[1:3])


def _masks(
    batch: Mapping[str, np.ndarray], index: int, count: int, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Masks of one image: probabilities over their boxes, or whole ones without the padding."""
    crops = batch.get(InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS)
    if crops is not None:
        return crops[index, :count].astype(np.float32) / 255.0
    masks = batch.get(InputFields.GROUNDTRUTH_INSTANCE_MASKS)
    return None if masks is None else masks[index, :count, : shape[0], : shape[1]]


def _visible_keypoints(
    batch: Mapping[str, np.ndarray], index: int, count: int, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Keypoints of one image, float [count, P, 2] in pixels; NaN for invisible ones."""
    keypoints = batch.get(InputFields.GROUNDTRUTH_KEYPOINTS)
    if keypoints is None:
        return None
    is_visible = batch[InputFields.GROUNDTRUTH_KEYPOINT_VISIBILITIES][index, :count]
    absolute = keypoints[index, :count] * np.array(shape[:2], np.float32)
    return np.where(is_visible[..., np.newaxis], absolute, np.nan)


def _enlargement(shape: tuple[int, ...]) -> int:
    return max(1, round(_READABLE_SIZE / max(shape[:2])))
