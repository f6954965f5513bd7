"""The networks of Faster R-CNN around the cropping of proposals."""

import keras
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.models.convolutions import Dense
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import LayerHyperparams


class TwoStageFeatureExtractor(FeatureExtractor):
    """A feature extractor of one stack, and a network over crops of its maps.

    Args:
      box_classifier: layer from crops [N, h, w, C] to features [N, h', w', C'].
      **options: arguments of `FeatureExtractor`.
    """

    def __init__(self, *, box_classifier: keras.layers.Layer, **options):
        super().__init__(**options)
        self.box_classifier = box_classifier

    def with_box_classifier(self, layer: keras.layers.Layer) -> 'TwoStageFeatureExtractor':
        """Returns an extractor of the same networks with another layer over the crops."""
        return TwoStageFeatureExtractor(
            backbone=self.backbone,
            strides=self.strides,
            pyramid=self.pyramid,
            box_classifier=layer,
            pad_to_multiple=self.pad_to_multiple,
            normalize=self._normalize,
            name=self.name,
        )

    def parts(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers with the variables: backbone, fpn (if any), box_classifier."""
        return super().parts() | {'box_classifier': self.box_classifier}

    def proposal_features(self, images: tf.Tensor, training: bool = False) -> list[tf.Tensor]:
        """Returns the feature maps for the prediction of proposals and for their crops.

        Args:
          images: float32 [B, H, W, 3], normalised.
          training: whether batch norms that are not frozen use and update batch statistics.

        Returns:
          One map per level, finest first; see `feature_stacks`.
        """
        (maps,) = self.feature_stacks(images, training)
        return maps

    def box_classifier_features(self, crops: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the features [N, h', w', C'] of crops [N, h, w, C] of the feature maps."""
        return self.box_classifier(crops, training=training)


class FullyConnectedBoxClassifier(keras.layers.Layer):
    """Two fully connected layers over a crop of a pyramid, with a norm in between.

    Maps [N, h, w, C], of static h, w and C, to [N, 1, 1, depth]. The dense layers are not
    penalised; `hyperparams` only apply to the norm.
    """

    def __init__(
        self,
        depth: int,
        *,
        hyperparams: LayerHyperparams,
        batch_norm_trainable: bool,
        name: str = 'box_classifier',
    ):
        super().__init__(name=name)
        self._first = Dense(depth, activation='relu', name='dense_1')
        self._norm = hyperparams.norm(frozen=not batch_norm_trainable, name='dense_1_bn')
        self._second = Dense(depth, activation='relu', name='dense_2')
        self._depth = depth

    def build(self, crops_shape):
        _, height, width, channels = crops_shape
        if None in (height, width, channels):
            raise UserError(
                f'{self.name}: expected crops of static height, width and depth. '
                f'Received: shape {tuple(crops_shape)}.'
            )
        self._first.build((None, height * width * channels))
        self._norm.build((None, self._depth))
        self._second.build((None, self._depth))

    def call(self, crops, training=False):
        _, height, width, channels = crops.shape
        x = self._first(tf.reshape(crops, [-1, height * width * channels]))
        x = self._second(self._norm(x, training=training))
        return x[:, tf.newaxis, tf.newaxis, :]  # [N, 1, 1, depth]
