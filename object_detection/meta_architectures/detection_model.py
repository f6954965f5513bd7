"""The base class of detectors: preprocessing, named variables, regularisation, checkpoints."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, final

import keras
import tensorflow as tf

from object_detection.core import loss_sum, tracing
from object_detection.core.detector import Detector
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions, is_same
from object_detection.core.variable_names import PLAIN_NAMES, RANGES, VariableNames
from object_detection.errors import UserError
from object_detection.meta_architectures.provided_groundtruth import ProvidedGroundtruth
from object_detection.models import image_channels, rounding
from object_detection.models.image_values import flat_rows, like_images
from object_detection.models.quantization import Quantization
from object_detection.weights import restore
from object_detection.weights.arrays import nest


class CheckpointView:
    """A detector's variables as the objects that checkpoints are made of.

    TensorFlow matches a checkpoint to Python objects name by name and silently omits objects
    that do not match, which are all objects if the detector's variables are not built yet. Here all
    weights come from the checkpoint, or reading it raises an error.
    """

    def __init__(self):
        self._named: dict[str, tf.Variable] = {}
        self._tree: dict[str, Any] = {}
        self._tree_of_file: dict[str, Any] = {}

    def children(self, named: Mapping[str, tf.Variable]) -> dict[str, Any]:
        """Returns the objects to save; the same variables always give the same objects."""
        is_known = self._named.keys() == named.keys() and all(
            self._named[name] is variable for name, variable in named.items()
        )
        if not is_known:
            self._named, self._tree = dict(named), _trackables(named)
        return self._tree

    def read(self, detector: Detector, path: str) -> None:
        """Restores the detector from the checkpoint at `path`, and remembers the names there.

        Raises:
          CheckpointError: as `restore.restore_by_path`.
        """
        self._tree_of_file = _trackables(restore.restore_by_path(detector, path))

    def lookup(self, name: str) -> Any:
        """Returns the object of a name in the checkpoint that was read last; None without one."""
        return (self._tree_of_file or self._tree).get(name)


def _trackables(named: Mapping[str, tf.Variable]) -> dict[str, Any]:
    tree = nest(named)
    holder = tf.train.Checkpoint(**tree)
    return {name: getattr(holder, name) for name in tree}


# Attributes of the reference that its notebooks read -> what they do here instead.
_RESTORE = (
    'object_detection.weights.restore.restore(detector, path, "detection") restores the layers '
    'whose shapes do not depend on the classes'
)
_REFERENCE_ATTRIBUTES = {
    '_feature_extractor': _RESTORE,
    '_box_predictor': _RESTORE,
    'restore_map': _RESTORE,
    'restore_from_objects': _RESTORE,
    'groundtruth_lists': 'keep the lists that provide_groundtruth is given',
    'groundtruth_has_field': 'keep the lists that provide_groundtruth is given',
}


class AnchorPredictions(NamedTuple):
    """Predictions of anchors, before boxes are decoded and suppressed.

    Attributes:
      box_codes: float32 [B, N, D].
      scores: float32 [B, N, K], without background.
      anchors: float32 [N, 4], normalized to the preprocessed images.
    """

    box_codes: tf.Tensor
    scores: tf.Tensor
    anchors: tf.Tensor


class DetectionModel(keras.layers.Layer, abc.ABC):
    """A detector in four stages: preprocess, predict, postprocess, loss.

    Attributes:
      num_classes: K, without background.
      resizer: the image resizer; `resizer(images) -> (resized, true_shape)`.
      pads_normalized: whether images are normalised first and then padded, as SSD does: the values
        of padding are the resizer's own then. Otherwise the padding is normalised too.
      variable_names: meaning of the names of its variables, for weights of other models.
      checkpoint_view: what `tf.train.Checkpoint(model=detector)` saves and restores: the variables
        by their names, as a training saves them. It restores checkpoints of the TensorFlow Object
        Detection API too, and raises where anything does not fit.
      quantization: how weights and activations are rounded, and the ranges of activations; None if
        they are not.
      provided: the ground truth of `provide_groundtruth`, for `predict` and `loss`.
      weight_decay: function that returns the penalty, a scalar, instead of the regularizers of
        single layers; None uses these regularizers.
    """

    pads_normalized = False
    variable_names: VariableNames = PLAIN_NAMES

    def __init__(self, *, num_classes: int, resizer: Callable, name: str):
        super().__init__(name=name)
        self.num_classes = num_classes
        self.resizer = resizer
        self.weight_decay: Callable[[], tf.Tensor] | None = None
        self.quantization: Quantization | None = rounding.current()
        self.checkpoint_view = CheckpointView()
        self.provided = ProvidedGroundtruth()

    @property
    def num_image_channels(self) -> int:
        """The number of channels C of the images that `predict` takes; 3 for most detectors."""
        return image_channels.of_backbone(self.parts().get('backbone'))

    @tracing.named('preprocess')
    def preprocess(self, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Resizes, pads and normalises images.

        Args:
          batch: uint8 or float [B, H, W, 3], RGB, in the resizer's `value_range`: 0..255 if none is
            declared.

        Returns:
          float32 [B, H', W', 3], and the shapes before padding, int32 [B, 3] (height, width,
          channels).
        """
        resized, true_shape = self.resizer(self.resizer.pixels(batch))
        true_shapes = tf.tile(true_shape[tf.newaxis], [tf.shape(batch)[0], 1])
        true_size = tf.get_static_value(true_shape)
        if true_size is not None and is_same(resized.shape[1:3], true_size[:2].tolist()):
            return self.normalize(resized), true_shapes
        return self.normalize_padded(resized, true_shapes), true_shapes

    def normalize_padded(self, images: tf.Tensor, true_shapes: tf.Tensor) -> tf.Tensor:
        """Completes `preprocess` for images that an input pipeline has resized and padded.

        The order of normalising and padding belongs to the family: see `pads_normalized`.

        Args:
          images: float32 [B, H, W, 3], 0..255; the resizer's values beyond `true_shapes`.
          true_shapes: int32 [B, 3], shapes before padding.

        Returns:
          float32 [B, H, W, 3].
        """
        normalized = self.normalize(images)
        if not self.pads_normalized:
            return normalized
        height, width, channels = dimensions(images, 1, 2, 3)
        sizes = true_shapes[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, 3]
        rows = tf.range(height)[:, tf.newaxis] < sizes[..., 0]  # [B, H, 1]
        values = tf.range(width * channels) < sizes[..., 1] * channels  # [B, 1, W * C]
        chosen = tf.where(rows & values, flat_rows(normalized), flat_rows(images))
        return like_images(chosen, images)

    @abc.abstractmethod
    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        """Normalises the channels of resized images, float32 [B, H, W, 3] in 0..255."""

    def side_inputs(self) -> dict[str, tf.TensorSpec]:
        """Returns the further inputs of `predict` besides images: name of the argument -> its spec.

        The first axis is the axis of images. Input pipelines provide them as entries of a batch
        with the same names, exported models as inputs of their signature.
        """
        return {}

    @final
    def predict(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool | None = None,
        groundtruth: Groundtruth | None = None,
        seeds: tf.Tensor | None = None,
        **side_inputs: tf.Tensor,
    ) -> Any:
        """Runs the network on preprocessed images.

        Args:
          images: float32 [B, H, W, 3], as `preprocess` returns them.
          true_shapes: int32 [B, 3], shapes before padding.
          training: whether dropout, batch norm updates and sampling for the losses are on. None is
            False, but True after `provide_groundtruth`.
          groundtruth: needed in training by families that sample what they predict from. Values
            that are computed of it for the losses are part of the predictions, so `loss` must get
            the same one.
          seeds: int32 [B, 2], one per image, of all sampling noise; None draws from the global
            generator.
          side_inputs: each of `side_inputs()`, by name.

        Returns:
          The raw predictions: a nest of tensors of the family's own type, which only the methods of
          its detector read.
        """
        training, groundtruth = self.provided.for_predict(images, training, groundtruth)
        with tracing.drawing_by(seeds):
            return self.forward(images, true_shapes, training, groundtruth, seeds, **side_inputs)

    @abc.abstractmethod
    def forward(
        self,
        images: tf.Tensor,
        true_shapes: tf.Tensor,
        training: bool,
        groundtruth: Groundtruth | None,
        seeds: tf.Tensor | None,
    ) -> Any:
        """Runs the network for `predict`, whose arguments it gets; it names the side inputs."""

    @abc.abstractmethod
    def postprocess(self, predictions: Any, true_shapes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Turns predictions into detections (keys of `DetectionFields`).

        Boxes are normalized to the true image, classes are 0-based floats, unused slots are zero.
        """

    def exported_predictions(self, predictions: Any) -> dict[str, tf.Tensor]:
        """Returns predictions [B, ...] by name that an exported model gives besides detections."""
        del predictions
        return {}

    def anchor_predictions(self, predictions: Any) -> AnchorPredictions:
        """Returns what `postprocess` decodes and suppresses, of families whose `anchors` have a
        `detection`; see `config.families.AnchorOptions`.
        """
        raise NotImplementedError(f'{self.name}: detections do not come from anchors in one step.')

    def provide_groundtruth(
        self,
        groundtruth_boxes_list: Sequence[tf.Tensor],
        groundtruth_classes_list: Sequence[tf.Tensor],
        groundtruth_masks_list: Sequence[tf.Tensor] | None = None,
        **others: Sequence[tf.Tensor] | None,
    ) -> None:
        """Gives ground truth to the next calls of `predict(images, true_shapes)` and `loss`.

        Scripts for the TensorFlow Object Detection API do so in their own training loops:

            detector.provide_groundtruth(boxes, classes)
            predictions = detector.predict(images, true_shapes)
            losses = detector.loss(predictions, true_shapes)

        `predict` trains then. It does not if it is called in another tf.function, with another
        number of images, or with `training=False`.

        Args:
          groundtruth_boxes_list: float32 [n, 4] of each image, normalized to the preprocessed one.
          groundtruth_classes_list: float32 [n, K] of each image, one-hot.
          groundtruth_masks_list: [n, H, W] of each image, over the preprocessed one; or None.
          others: `groundtruth_keypoints_list`, `groundtruth_weights_list` and
            `groundtruth_is_crowd_list`, of each image [n, P, 2], [n] and [n].

        Raises:
          UserError: if lists differ in their number of images, or there is another argument.
        """
        lists = {
            'groundtruth_boxes_list': groundtruth_boxes_list,
            'groundtruth_classes_list': groundtruth_classes_list,
            'groundtruth_masks_list': groundtruth_masks_list,
        }
        self.provided.set(lists | others)

    @final
    def loss(
        self, predictions: Any, groundtruth: Groundtruth | tf.Tensor, seeds: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the weighted losses, float32 scalars, under the reference's names.

        In a replica of a strategy, the mean over the replicas is the loss of their whole batch.

        Args:
          predictions: of `predict`.
          groundtruth: that of the images; a tensor, such as the shapes of the images, stands for
            the ground truth of `provide_groundtruth`.
          seeds: as in `predict`.
        """
        sums = self.loss_sums(predictions, self.provided.for_loss(groundtruth), seeds)
        losses = loss_sum.divide(sums, loss_sum.over_replicas(loss_sum.divisors(sums)))
        context = tf.distribute.get_replica_context()
        count = 1 if context is None else context.num_replicas_in_sync
        return {name: loss * count for name, loss in losses.items()}

    @abc.abstractmethod
    def loss_sums(
        self, predictions: Any, groundtruth: Groundtruth, seeds: tf.Tensor | None
    ) -> dict[str, LossSum]:
        """Returns the weighted losses before they are divided, under the reference's names.

        Those of the parts of a batch add up to those of the batch.

        Args:
          predictions: of `predict`.
          groundtruth: that of the images.
          seeds: as in `predict`.
        """

    def predict_masks_from_boxes(
        self, predictions: Any, true_shapes: tf.Tensor, boxes: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns detections in given boxes, float32 [B, N, 4], normalized to the true images.

        Raises:
          UserError: if the family cannot classify given boxes, the default.
        """
        del predictions, true_shapes, boxes
        raise UserError(f'{self.name}: this family of detectors does not classify given boxes.')

    @abc.abstractmethod
    def loss_names(self) -> Sequence[str]:
        """Returns the names of the losses that `loss` returns for complete ground truth."""

    @property
    def needs_masks(self) -> bool:
        """Whether losses need instance masks, which the detector then predicts."""
        return False

    @property
    def needs_keypoints(self) -> bool:
        """Whether losses need keypoints."""
        return False

    @abc.abstractmethod
    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with the variables, by the first component of the variable names."""

    def regularization_losses(self) -> list[tf.Tensor]:
        """Returns the penalties, scalars: of each regularised variable, or of `weight_decay`."""
        return list(self.losses) if self.weight_decay is None else [self.weight_decay()]

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns all weights by names that do not depend on the order of construction.

        Raises:
          ValueError: if two variables share a name.
        """
        named: dict[str, tf.Variable] = {}
        for part, layer in self.parts().items():
            # `weights`, unlike `variables`, does not include the states of random generators.
            for variable in layer.weights:
                name = f'{part}/{variable.path.removeprefix(layer.name + "/")}'
                if name in named:
                    raise UserError(f'{self.name}: two variables are named {name!r}.')
                named[name] = variable.value
        if self.quantization is not None:
            named |= {f'{RANGES}{name}': v for name, v in self.quantization.variables.items()}
        return named

    def named_trainable_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables that training changes, by the names of `named_variables`."""
        trainable = {id(variable.value) for variable in self.trainable_variables}
        return {
            name: variable
            for name, variable in self.named_variables().items()
            if id(variable) in trainable
        }

    @abc.abstractmethod
    def build_variables(self) -> None:
        """Creates all variables."""

    def __getattr__(self, name: str) -> NoReturn:
        # Called for names that do not exist.
        message = f'{type(self).__name__!r} object has no attribute {name!r}'
        if name in _REFERENCE_ATTRIBUTES:
            message += f': {_REFERENCE_ATTRIBUTES[name]}'
        raise AttributeError(message, name=name, obj=self)

    # Hooks of TensorFlow's checkpoints.

    def _trackable_children(self, save_type: str = 'checkpoint', **kwargs) -> dict[str, Any]:
        if save_type != 'checkpoint':
            return super()._trackable_children(save_type, **kwargs)
        return self.checkpoint_view.children(self.named_variables())

    def _lookup_dependency(self, name: str, cached_dependencies: Any = None) -> Any:
        # Only a restoration determines the children.
        if cached_dependencies is None:
            return super()._lookup_dependency(name)
        return self.checkpoint_view.lookup(name)

    def _checkpoint_adapter(self, path: str) -> None:
        # Called when a checkpoint is restored, before its names are looked up.
        self.checkpoint_view.read(self, path)

    def _name_based_attribute_restore(self, checkpoint: Any) -> None:
        # Called instead of the method above for checkpoints of TensorFlow 1.
        self.checkpoint_view.read(self, checkpoint.save_path)
