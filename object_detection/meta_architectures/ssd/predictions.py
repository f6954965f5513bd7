"""The predictions of a single-shot detector, as typed values that a `tf.function` can return."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core.fields import DetectionFields
from object_detection.core.shapes import dimensions
from object_detection.targets.targets import Targets


class Predictions(NamedTuple):
    """The result of `Ssd.predict` for B images and N anchors, over all levels, fine to coarse.

    Attributes:
      images: float32 [B, H, W, 3], the preprocessed images.
      features: the feature maps, fine to coarse, [B, Hl, Wl, C].
      anchors: float32 [N, 4], normalized to the preprocessed image.
      box_codes: float32 [B, N, D].
      class_logits: float32 [B, N, C], with the background column first if the model has one.
      class_probabilities: float32 [B, N, C], in inference if the box predictor converts its logits;
        else None. Losses take the logits.
      raw_boxes: float32 [B, N, 4], decoded boxes before suppression, normalized to the preprocessed
        image, if the config requests them; else None.
      level_of_anchor: int32 [B, N], indices of feature maps, together with `raw_boxes`.
      targets: targets of the anchors, from the ground truth given to `predict`.
      further: float32 [B, N, size], what else is predicted, by the name of the output.
    """

    images: tf.Tensor
    features: list[tf.Tensor]
    anchors: tf.Tensor
    box_codes: tf.Tensor
    class_logits: tf.Tensor
    class_probabilities: tf.Tensor | None = None
    raw_boxes: tf.Tensor | None = None
    level_of_anchor: tf.Tensor | None = None
    targets: Targets | None = None
    further: Mapping[str, tf.Tensor] = MappingProxyType({})

    @property
    def class_outputs(self) -> tf.Tensor:
        """The outputs for the score converter: probabilities where there are any, else logits."""
        return self.class_logits if self.class_probabilities is None else self.class_probabilities

    def to_dict(self) -> dict[str, Any]:
        """Returns the predictions by the names of the reference."""
        (batch,) = dimensions(self.box_codes, 0)
        named = {
            'preprocessed_inputs': self.images,
            'feature_maps': self.features,
            'anchors': self.anchors,
            'final_anchors': tf.tile(self.anchors[tf.newaxis], [batch, 1, 1]),
            'box_encodings': self.box_codes,
            'class_predictions_with_background': self.class_outputs,
            DetectionFields.RAW_BOXES: self.raw_boxes,
            'raw_detection_feature_map_indices': self.level_of_anchor,
            **self.further,
        }
        return {name: value for name, value in named.items() if value is not None}

    def items(self):
        """Returns the names and values of `to_dict`, for scripts for the reference."""
        return self.to_dict().items()
