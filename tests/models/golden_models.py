"""Whole detectors of the reference: configs, weights and tensors from ../shared/goldens/models."""

import functools
import importlib.util
import json
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.models.feature_extractors import FeatureExtractor
from object_detection.predictors.box_head import BoxHead
from object_detection.predictors.mask_head import MaskHead
from object_detection.predictors.rpn_head import RpnHead
from object_detection.protos import faster_rcnn_pb2, model_pb2, pipeline_pb2

GOLDENS = pathlib.Path(__file__).resolve().parents[3] / 'shared' / 'goldens'

# Parts of the reference's checkpoint keys.
_PROPOSALS = '_feature_extractor_for_proposal_features'
_BOX_CLASSIFIER = '_feature_extractor_for_box_classifier_features/layer_with_weights-{}'
_RPN = '_first_stage_box_predictor/_prediction_heads'
_SECOND_STAGE = '_mask_rcnn_box_predictor'


class GoldenModel:
    """One detector of the reference.

    Attributes:
      model_config: its DetectionModel message.
      config: the FasterRcnn message in it.
      facts: the json beside its arrays.
      arrays: name -> array.
      unused: checkpoint keys that `fill` has not read yet.
      keys: path of a variable that `fill` set -> its checkpoint key.
    """

    def __init__(self, name: str):
        if not GOLDENS.is_dir():
            pytest.skip('needs ../shared/goldens')
        self.facts = json.loads((GOLDENS / 'models' / f'{name}.json').read_text())
        with np.load(GOLDENS / 'models' / f'{name}.npz') as archive:
            self.arrays = {key: archive[key] for key in archive.files}
        pipeline = pipeline_pb2.TrainEvalPipelineConfig()
        text_format.Parse(self.facts['config'].replace('@GOLDENS@', str(GOLDENS)), pipeline)
        self.model_config: model_pb2.DetectionModel = pipeline.model
        self.config: faster_rcnn_pb2.FasterRcnn = pipeline.model.faster_rcnn
        self._shapes = {key: tuple(shape) for key, shape, _ in self.facts['variables']}
        self.unused = set(self._shapes)
        self.keys: dict[str, str] = {}

    def images(self) -> np.ndarray:
        """Returns the images, resized and padded to a square, float32 [B, H, W, 3] in 0..255."""
        images = self.arrays['images']
        size = self.facts['tensors']['preprocess/inputs']['shape'][1]
        scale = size / max(images.shape[1:3])
        target = [round(side * scale) for side in images.shape[1:3]]
        resized = tf.compat.v1.image.resize(images.astype(np.float32), target)
        return tf.image.pad_to_bounding_box(resized, 0, 0, size, size).numpy()

    def fill(self, layers: Sequence[keras.layers.Layer], prefix: str) -> None:
        """Gives `layers` the reference's weights.

        Args:
          layers: as many as there are keys that match.
          prefix: of their checkpoint keys, with `{}` for the index in `layers`.
        """
        recipe = _recipe()
        for i, layer in enumerate(layers):
            for variable in layer.variables:
                key = f'model/{prefix.format(i)}/{variable.name}{recipe.SUFFIX}'
                shape = self._shapes[key]
                assert tuple(variable.shape) == shape, (key, variable.path)
                variable.assign(recipe.weight(key, shape, self.facts['recipe']['s']))
                self.unused.discard(key)
                self.keys[variable.path] = key

    def check(self, name: str, ours: tf.Tensor, *, tolerance: float = 5e-5) -> None:
        """Asserts that `ours` is the recorded tensor, relative to that tensor's own spread."""
        info = self.facts['tensors'][name]
        ours = np.asarray(ours, np.float64)
        assert list(ours.shape) == info['shape'], name
        if info['stored'] == 'full':
            expected = self.arrays[name].ravel()
            received = ours.ravel()
        else:
            expected = self.arrays[f'{name}#val']
            received = ours.ravel()[self.arrays[f'{name}#idx']]
        # Constant tensors have no spread.
        error = np.abs(received - expected).max() / (info['std'] or 1.0)
        assert error <= tolerance, f'{name}: differs by {error:.2g} of its spread'


def fill_proposal_layers(golden: GoldenModel, extractor: FeatureExtractor) -> None:
    """Fills the backbone and, where there is one, the pyramid of a ResNet-50."""
    layers = '/layer_with_weights-{}'
    if extractor.pyramid is None:
        golden.fill(layers_with_weights(extractor.backbone), _PROPOSALS + layers)
        return
    golden.fill(
        layers_with_weights(extractor.backbone), f'{_PROPOSALS}/classification_backbone{layers}'
    )
    layer = extractor.pyramid.get_layer
    generator = _PROPOSALS + '/fpn_features_generator'
    golden.fill([layer('projection_5')], generator + '/top_layers/{}')
    for i, level in enumerate((4, 3, 2)):
        golden.fill([layer(f'projection_{level}')], f'{generator}/residual_blocks/{i}/{{}}')
        smoothing = [layer(f'smoothing_{level}'), layer(f'smoothing_{level}_bn')]
        golden.fill(smoothing, f'{generator}/conv_layers/{i}/{{}}')
    golden.fill(
        [layer('coarse_6'), layer('coarse_6_bn')], _PROPOSALS + '/coarse_feature_layers/0/{}'
    )


def fill_box_classifier(golden: GoldenModel, extractor: FeatureExtractor) -> None:
    """Fills the layers, already built, between crops and the box head."""
    classifier = extractor.box_classifier
    if extractor.pyramid is None:
        layers = layers_with_weights(classifier)
    else:
        layers = [classifier._first, classifier._norm, classifier._second]
    golden.fill(layers, _BOX_CLASSIFIER)


def fill_rpn_head(golden: GoldenModel, head: RpnHead) -> None:
    golden.fill([head._conv], '_first_stage_box_predictor_first_conv/layer_with_weights-{}')
    golden.fill(head._box_heads, _RPN + '/box_encodings/{}/_box_encoder_layers/0')
    golden.fill(
        head._class_heads, _RPN + '/class_predictions_with_background/{}/_class_predictor_layers/0'
    )


def fill_box_head(golden: GoldenModel, head: BoxHead) -> None:
    # The reference's lists start with a layer without weights.
    golden.fill([head._box_dense], _SECOND_STAGE + '/_box_prediction_head/_box_encoder_layers/1')
    golden.fill(
        [head._class_dense], _SECOND_STAGE + '/_class_prediction_head/_class_predictor_layers/1'
    )


def fill_mask_head(golden: GoldenModel, head: MaskHead) -> None:
    golden.fill(
        [head._convs[0], head._activation, head._activation, head._last],
        _SECOND_STAGE + '/_third_stage_heads/mask_predictions/_mask_predictor_layers/{}',
    )


def layers_with_weights(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers as the reference's checkpoints count them."""
    return [layer for layer in model.layers if layer.variables]


def crop(features: np.ndarray, boxes: np.ndarray, size: int) -> np.ndarray:
    """Bilinear crops of one map [H, W, C] at normalized boxes [P, 4], [P, size, size, C].

    The last sample of a box that ends at the border lies exactly there, as in the reference.
    """
    share = np.linspace(0, 1, size)

    def weights(low: float, high: float, length: int) -> np.ndarray:
        positions = (low * (1 - share) + high * share) * (length - 1)
        return np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(length)))

    height, width, _ = features.shape
    return np.stack(
        [
            np.einsum(
                'hy,wx,yxc->hwc',
                weights(ymin, ymax, height),
                weights(xmin, xmax, width),
                features,
                optimize=True,
            )
            for ymin, xmin, ymax, xmax in boxes
        ]
    ).astype(np.float32)


@functools.cache
def _recipe() -> Callable:
    spec = importlib.util.spec_from_file_location('recipe', GOLDENS / 'recipe.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
