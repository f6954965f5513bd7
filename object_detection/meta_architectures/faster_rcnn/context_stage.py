"""Features of boxes with what they see in other images (Context R-CNN, https://arxiv.org/abs/1912.03538)."""

from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.errors import UserError, expected
from object_detection.models.heads.context_attention import ContextAttention, ContextMemory, Memory


class RegionContext(NamedTuple):
    """What regions attend to.

    Attributes:
      counts: int32 [B], how many regions of an image are valid, the first ones.
      memory: the memory of the images; None if regions only attend to each other.
    """

    counts: tf.Tensor
    memory: Memory | None = None


class ContextStage(keras.layers.Layer):
    """Adds what regions attend to to their features.

    The attention of a region depends on the mean of its features over their cells; its result is
    added to each cell. Unlike in the reference, batches may be of any size, and a feature pyramid
    keeps its levels.

    Args:
      attention: computes what regions see.
      memory: projects context features; None if regions only attend to each other.
      before_box_classifier: whether features are the pooled crops, and not the outputs of the
        layers after them.
      max_features: number of context features of an image, with padding.
      feature_length: length of each.
    """

    def __init__(
        self,
        *,
        attention: ContextAttention,
        memory: ContextMemory | None,
        before_box_classifier: bool,
        max_features: int,
        feature_length: int,
        name: str = 'context_stage',
    ):
        super().__init__(name=name)
        self.attention = attention
        self.memory = memory
        self._before_box_classifier = before_box_classifier
        self._size = (max_features, feature_length)

    def layers_with_variables(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers by their names among the parts of a detector."""
        layers = {'context_memory': self.memory, 'context_attention': self.attention}
        return {name: layer for name, layer in layers.items() if layer is not None}

    def side_inputs(self) -> dict[str, tf.TensorSpec]:
        """Returns the specs of the context; see `DetectionModel.side_inputs`."""
        if self.memory is None:
            return {}
        return {
            F.CONTEXT_FEATURES: tf.TensorSpec([None, *self._size], tf.float32),
            F.VALID_CONTEXT_SIZE: tf.TensorSpec([None], tf.int32),
        }

    def add_to_crops(self, pooled: tf.Tensor, context: RegionContext, training: bool) -> tf.Tensor:
        """Returns pooled crops [B * P, h, w, C], with what their regions see."""
        return self._add(pooled, context, training) if self._before_box_classifier else pooled

    def add_to_features(
        self, features: tf.Tensor, context: RegionContext, training: bool
    ) -> tf.Tensor:
        """Returns the features [B * P, h, w, C] that classify regions, with what these see."""
        return features if self._before_box_classifier else self._add(features, context, training)

    def _add(self, features: tf.Tensor, context: RegionContext, training: bool) -> tf.Tensor:
        seen = self.attention(features, context.counts, context.memory, training=training)
        return features + tf.cast(seen, features.dtype)


def remember(
    stage: ContextStage | None, features: tf.Tensor | None, counts: tf.Tensor | None, training: bool
) -> Memory | None:
    """Returns the memory of images; None if regions attend to none.

    Args:
      stage: the stage; None if there is none.
      features: context_features float32 [B, N, L], padded.
      counts: valid_context_size int32 [B], how many features of an image are no padding, the first
        ones.
      training: whether norms act as in training.

    Raises:
      UserError: if an argument is absent or not taken, or features have another length.
    """
    given = {F.CONTEXT_FEATURES: features, F.VALID_CONTEXT_SIZE: counts}
    received = [f'{name} {list(value.shape)}' for name, value in given.items() if value is not None]
    if stage is None or stage.memory is None:
        if received:
            raise expected(
                'FasterRcnn.predict', 'no context without a context_config', ', '.join(received)
            )
        return None
    length = stage.side_inputs()[F.CONTEXT_FEATURES].shape[-1]
    if len(received) < len(given) or features.shape[-1] != length:
        raise UserError(
            f'FasterRcnn.predict: expected {F.CONTEXT_FEATURES} [B, N, {length}] '
            f'(context_config.context_feature_length) and {F.VALID_CONTEXT_SIZE} [B] with the '
            f'images. Received: {", ".join(received) or "neither"}.'
        )
    return stage.memory(features, counts, training=training)


def no_context(stage: ContextStage | None) -> RegionContext:
    """Returns the context of one region of an image that has no other context."""
    inputs = {
        name: tf.zeros([1, 1, *spec.shape[2:]] if spec.shape.rank > 1 else [1], spec.dtype)
        for name, spec in (stage.side_inputs() if stage else {}).items()
    }
    memory = remember(
        stage, inputs.get(F.CONTEXT_FEATURES), inputs.get(F.VALID_CONTEXT_SIZE), training=False
    )
    return RegionContext(tf.ones([1], tf.int32), memory)
