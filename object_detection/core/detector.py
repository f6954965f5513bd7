"""What a detector is to everything that is no part of it; loads no TensorFlow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from object_detection.core.variable_names import VariableNames

if TYPE_CHECKING:
    import tensorflow as tf

    from object_detection.core.groundtruth import Groundtruth


class Detector(Protocol):
    """A detector in four stages: preprocess, predict, postprocess, loss.

    `meta_architectures.detection_model.DetectionModel` says what each method takes and returns.

    Attributes:
      num_classes: K, without background.
      variable_names: the naming scheme of its variables.
    """

    num_classes: int
    variable_names: VariableNames

    def preprocess(self, batch: 'tf.Tensor') -> 'tuple[tf.Tensor, tf.Tensor]':
        """Resizes, pads and normalises images [B, H, W, 3]; returns them and their true shapes."""

    def normalize(self, images: 'tf.Tensor') -> 'tf.Tensor':
        """Normalises the channels of images, float32 [B, H, W, 3] in 0..255."""

    def predict(self, images: 'tf.Tensor', true_shapes: 'tf.Tensor', **options: Any) -> Any:
        """Runs the network on preprocessed images."""

    def postprocess(self, predictions: Any, true_shapes: 'tf.Tensor') -> 'dict[str, tf.Tensor]':
        """Turns predictions into detections (keys of `DetectionFields`)."""

    def loss(self, predictions: Any, groundtruth: 'Groundtruth') -> 'dict[str, tf.Tensor]':
        """Returns the weighted losses, scalars, by name."""

    def parts(self) -> Mapping[str, Any]:
        """Returns the layers that hold the variables, by the first component of variable names."""

    def named_variables(self) -> 'Mapping[str, tf.Variable]':
        """Returns all weights by name."""

    def build_variables(self) -> None:
        """Creates all variables."""
