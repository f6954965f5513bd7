"""CenterNet: objects as points (https://arxiv.org/abs/1904.07850)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.fields import DetectionFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.post_processing import Suppressed
from object_detection.core.shapes import dimensions, is_same
from object_detection.errors import expected
from object_detection.meta_architectures.center_net import heat_maps
from object_detection.meta_architectures.center_net.deepmac.deepmac import DeepMac
from object_detection.meta_architectures.center_net.heads import PredictionHeads
from object_detection.meta_architectures.center_net.tasks import object_center
from object_detection.meta_architectures.center_net.tasks.box import Box
from object_detection.meta_architectures.center_net.tasks.task import (
    Cells,
    Found,
    Task,
    TaskObjects,
    centers,
    gather_points,
)
from object_detection.meta_architectures.center_net.variable_names import CENTER_NET_NAMES
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.feature_extractor import FeatureExtractor

# Side of the image that variables are built for.
_PROBE_SIZE = 128
# A logit whose score is 0.
_NEVER = -1e9

# The predictions of a batch, by the names of the reference: the maps of each head, a list with one
# for each stack; `extracted_features`, `preprocessed_inputs` and `true_image_shapes`.
Predictions = dict[str, tf.Tensor | Sequence[tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class PostProcessing:
    """How heat maps become detections.

    Attributes:
      max_detections: detections an image.
      peak_window: side of the window that a peak must be the maximum of.
      nms: non-maximum suppression, `(boxes [B, N, 1, 4], scores [B, N, K], ...) -> Suppressed`;
        None if detections are not suppressed.
      ignores_padding: whether cells beyond the true image hold no detections and no keypoints.
    """

    max_detections: int = 100
    peak_window: int = 3
    nms: Callable[..., Suppressed] | None = None
    ignores_padding: bool = False


class CenterNet(DetectionModel):
    """A detector that finds the centres of objects, and reads all else at these cells.

    Losses are divided by the number of objects of the batch, or of what else they are sums over,
    and are means over the stacks of features.

    Args:
      num_classes: K.
      resizer: the image resizer.
      feature_extractor: gives one map for each stack.
      heads: the heads of all tasks.
      tasks: the tasks by name, the heat map of centres first.
      post_processing: what turns predictions into detections.
      exports_predictions: whether exports have the maps too.
    """

    variable_names = CENTER_NET_NAMES

    def __init__(
        self,
        *,
        num_classes: int,
        resizer: Callable,
        feature_extractor: FeatureExtractor,
        heads: PredictionHeads,
        tasks: Mapping[str, Task],
        post_processing: PostProcessing,
        exports_predictions: bool = False,
        name: str = 'center_net',
    ):
        super().__init__(num_classes=num_classes, resizer=resizer, name=name)
        self.feature_extractor = feature_extractor
        self.heads = heads
        self.tasks = dict(tasks)
        # Lists, which Keras follows to find variables.
        self._task_layers = [dict(task.layers) for task in tasks.values() if task.layers]
        self._box = next((task for task in tasks.values() if isinstance(task, Box)), None)
        self._post_processing = post_processing
        self._exports_predictions = exports_predictions

    def parts(self) -> dict[str, keras.layers.Layer]:
        parts = {**self.feature_extractor.parts(), 'heads': self.heads}
        for layers in self._task_layers:
            parts |= layers
        return parts

    def build_variables(self) -> None:
        (features,) = self.feature_extractor.empty_features(_PROBE_SIZE)
        self.heads([features] * self.feature_extractor.num_stacks)

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        return self.feature_extractor.normalize(images)

    def forward(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool,
        groundtruth: Groundtruth | None,
        seeds: tf.Tensor | None,
    ) -> Predictions:
        """Runs the network; see the base class."""
        features = self._features(images, training)
        predictions = {
            **self.heads(features, training=training),
            'extracted_features': features,
            'preprocessed_inputs': images,
            'true_image_shapes': true_shapes,
        }
        if groundtruth is None:
            return predictions
        return self._with_objects(predictions, groundtruth, training, seeds)

    @tracing.named('postprocess')
    def postprocess(self, predictions: Predictions, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        options = self._post_processing
        maps = {name: predictions[name][-1] for name in self.heads.names}
        maps |= self._seen_heat_maps(maps, predictions, true_shapes)
        scores = tf.sigmoid(maps[object_center.NAME])  # [B, H, W, K]
        peaks = heat_maps.top_cells(
            heat_maps.find_peaks(scores, options.peak_window), options.max_detections
        )
        found = {
            DetectionFields.SCORES: peaks.scores,
            DetectionFields.CLASSES: tf.cast(peaks.channels, tf.float32),
            DetectionFields.MULTICLASS_SCORES: heat_maps.gather_cells(
                scores, peaks.rows, peaks.columns
            ),
        }
        (stride,) = self.feature_extractor.strides
        context = Found(peaks, None, true_shapes, stride)
        if self._box is not None:
            context = context._replace(boxes=self._box.strided_boxes(maps, context))
        for task in self.tasks.values():
            found |= task.detect(maps, context)
        # Also those whose scores their keypoints reduce to 0.
        is_found = tf.cast(peaks.scores > 0.0, tf.float32)
        found[DetectionFields.NUM_DETECTIONS] = tf.reduce_sum(is_found, axis=1)
        return found if options.nms is None else self._suppress(found)

    def _seen_heat_maps(
        self, maps: Mapping[str, tf.Tensor], predictions: Predictions, true_shapes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the heat maps without scores in the padding, which no loss reaches.

        In the reference, the padding of the resizer has peaks, which only `ignores_padding` drops.
        It has no padding by the network, whose peaks are always dropped.
        """
        if not self._post_processing.ignores_padding:
            images = predictions['preprocessed_inputs']
            size = dimensions(images, 1, 2)
            if is_same(size, self.feature_extractor.padded_size(*size)):
                return {}
            true_shapes = tf.tile([[*size, 0]], [dimensions(images, 0)[0], 1])
        (stride,) = self.feature_extractor.strides
        size = dimensions(maps[object_center.NAME], 1, 2)
        is_seen = heat_maps.valid_cells(true_shapes, size, stride)[..., tf.newaxis] > 0.0
        names = (name for task in self.tasks.values() for name in task.heat_maps)
        return {name: tf.where(is_seen, maps[name], _NEVER) for name in names}

    def exported_predictions(self, predictions: Predictions) -> dict[str, tf.Tensor]:
        """Returns the maps of the last stack by name, where the config asks for them."""
        if not self._exports_predictions:
            return {}
        return {
            name: value[-1] if isinstance(value, list) else value
            for name, value in predictions.items()
        }

    def predict_masks_from_boxes(
        self, predictions: Predictions, true_shapes: tf.Tensor, boxes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Predicts a mask in each of given boxes, in place of its own detections.

        Args:
          predictions: of `predict`.
          true_shapes: int32 [B, 3], shapes before padding.
          boxes: float32 [B, N, 4], normalized to the true image.

        Returns:
          As `postprocess`: the boxes as they are, the best class (0-based) at their centres with
          its score, the scores of all classes, N as the number of detections, and masks.

        Raises:
          UserError: if no task predicts masks of single objects.
        """
        task = next((task for task in self.tasks.values() if isinstance(task, DeepMac)), None)
        if task is None:
            raise expected(f'{self.name}: masks of given boxes', 'deepmac_mask_estimation')
        maps = {name: predictions[name][-1] for name in self.heads.names}
        (stride,) = self.feature_extractor.strides
        sizes = tf.cast(true_shapes[:, tf.newaxis, :2], tf.float32) / float(stride)
        strided = boxes * tf.tile(sizes, [1, 1, 2])
        scores = gather_points(tf.sigmoid(maps[object_center.NAME]), centers(strided)[0])
        batch, count = dimensions(boxes, 0, 1)
        return {
            DetectionFields.BOXES: boxes,
            DetectionFields.SCORES: tf.reduce_max(scores, axis=-1),
            DetectionFields.CLASSES: tf.cast(tf.argmax(scores, axis=-1), tf.float32),
            DetectionFields.MULTICLASS_SCORES: scores,
            DetectionFields.NUM_DETECTIONS: tf.fill([batch], tf.cast(count, tf.float32)),
            DetectionFields.MASKS: task.masks_in(maps, strided, stride),
        }

    @tracing.named('loss')
    def loss_sums(
        self, predictions: Predictions, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the losses of the tasks; see the base class."""
        # Predicted without the ground truth, as in evaluation.
        needed = {name for task in self.tasks.values() for name in task.object_predictions}
        if not needed <= predictions.keys():
            predictions = self._with_objects(predictions, groundtruth, False, seeds)
        cells = self._cells(predictions, groundtruth)
        sums = {}
        for task in self.tasks.values():
            names = (*task.heads, *task.object_predictions)
            sums |= task.loss_sums({name: predictions[name] for name in names}, cells)
        return sums

    @property
    def needs_masks(self) -> bool:
        """Whether a task learns masks."""
        return any(task.needs_masks for task in self.tasks.values())

    @property
    def needs_keypoints(self) -> bool:
        """Whether a task learns keypoints."""
        return any(task.needs_keypoints for task in self.tasks.values())

    def loss_names(self) -> tuple[str, ...]:
        return tuple(name for task in self.tasks.values() for name in task.loss_names)

    def _features(self, images: tf.Tensor, training: bool) -> list[tf.Tensor]:
        return [maps[0] for maps in self.feature_extractor.feature_stacks(images, training)]

    def _with_objects(
        self,
        predictions: Predictions,
        groundtruth: Groundtruth,
        training: bool,
        seeds: tf.Tensor | None,
    ) -> Predictions:
        """Returns the predictions, and those that tasks make of the objects."""
        images, groundtruth = self._in_frame(predictions, groundtruth)
        objects = TaskObjects(
            groundtruth,
            images,
            training,
            seeds,
            lambda images: self.heads(self._features(images, training), training=training),
        )
        further = {}
        for task in self.tasks.values():
            further |= task.predict_objects({n: predictions[n] for n in task.heads}, objects)
        return {**predictions, **further}

    def _cells(self, predictions: Predictions, groundtruth: Groundtruth) -> Cells:
        images, groundtruth = self._in_frame(predictions, groundtruth)
        size = dimensions(predictions[object_center.NAME][-1], 1, 2)
        (stride,) = self.feature_extractor.strides
        cells = make_cells(groundtruth, size, predictions['true_image_shapes'], stride)
        return cells._replace(images=images)

    def _in_frame(
        self, predictions: Predictions, groundtruth: Groundtruth
    ) -> tuple[tf.Tensor, Groundtruth]:
        """Returns the images that the maps cover, padded, and the ground truth in their frame."""
        images = predictions['preprocessed_inputs']
        size = dimensions(images, 1, 2)
        padded = self.feature_extractor.padded_size(*size)
        return self.feature_extractor.pad(images), groundtruth.in_padded(size, padded)

    def _suppress(self, found: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the detections that do not overlap with better ones of their class."""
        classes = tf.cast(found[DetectionFields.CLASSES], tf.int32)
        of_class = tf.one_hot(classes, self.num_classes)  # [B, N, K]
        named = (DetectionFields.BOXES, DetectionFields.SCORES, DetectionFields.CLASSES)
        skipped = {*named, DetectionFields.NUM_DETECTIONS}
        chosen = self._post_processing.nms(
            found[DetectionFields.BOXES][:, :, tf.newaxis],
            of_class * found[DetectionFields.SCORES][..., tf.newaxis],
            change_coordinate_frame=False,  # They are relative to the true image already.
            additional_fields={name: v for name, v in found.items() if name not in skipped},
        )
        return {
            DetectionFields.BOXES: chosen.boxes,
            DetectionFields.SCORES: chosen.scores,
            DetectionFields.CLASSES: chosen.classes,
            DetectionFields.NUM_DETECTIONS: tf.cast(chosen.num_detections, tf.float32),
            **chosen.additional_fields,
        }


def make_cells(
    groundtruth: Groundtruth, size: Sequence, true_shapes: tf.Tensor, stride: int
) -> Cells:
    """Returns the ground truth on maps.

    Args:
      groundtruth: objects of the batch, normalized to the images that the maps cover.
      size: H, W of the maps.
      true_shapes: int32 [B, 3], sizes of the true images in pixels.
      stride: side of a cell in pixels.
    """
    valid = heat_maps.valid_cells(true_shapes, size, stride)
    count = tf.math.count_nonzero(groundtruth.weights, dtype=tf.float32)
    return Cells(groundtruth, tuple(size), valid, count, stride)
