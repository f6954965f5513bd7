"""A detector's graph beside its eager execution."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tests import tiny_models as tiny
from tests import tolerances
from tests.tiny_models import shapes

# Scores of this one lie apart by more than last digits change them, and so does their order.
_SEED = 7
_SCORES = ('proposal_scores', 'detection_scores')
# What must be seen. Masks of random weights follow the last digits of boxes: less is not.
_CHANGES = {'box_head/classes/kernel': 1.01, 'mask_head/masks/kernel': 1.1}


def check_graph_equals_eager(
    overrides: Sequence[str], images: tf.Tensor, shape: Sequence[int | None]
) -> None:
    """Checks that a graph gives what eager execution does, to within rounding.

    Args:
      overrides: of `tiny.tiny_detector`.
      images: float32 [B, H, W, 3].
      shape: of the images that the graph takes.
    """
    detector = tiny.tiny_detector(*overrides, seed=_SEED)
    # Or logits of hundreds would amplify what is rounded otherwise in graphs.
    tiny.shrink_last_layers(detector)
    variables = detector.named_variables()
    # Or features of proposals would all be 0 or 6, the ends of ReLU6, and their scores ties.
    kernel = variables['rpn/conv/kernel']
    kernel.assign(0.02 * kernel)

    def detect(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        predictions = detector.predict(detector.normalize(batch), shapes(batch))
        detections = detector.postprocess(predictions, shapes(batch))
        return detections | {'proposal_scores': predictions.proposals.scores}

    spec = tf.TensorSpec(shape, tf.float32)
    graph = tf.function(detect, input_signature=[spec], autograph=False)
    eager = _arrays(detect(images))
    assert np.all(eager['num_detections'] == eager['detection_scores'].shape[1])
    allowed = tolerances.of_rounding(
        eager,
        list(tolerances.runs_off_by_last_digits(variables, lambda: _arrays(graph(images)))),
    )
    for name in _SCORES:
        gaps = -np.diff(eager[name], axis=1)
        assert gaps.min() > 8 * allowed[name] / tolerances.MARGIN, name
    assert not tolerances.differing(graph(images), eager, allowed)
    for name, factor in _CHANGES.items():
        before = variables[name].numpy()
        variables[name].assign(factor * before)
        assert tolerances.differing(graph(images), eager, allowed), name
        variables[name].assign(before)


def _arrays(tensors: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {key: value.numpy() for key, value in tensors.items()}
