"""Whole detectors of the reference: configs, weights and tensors from ../shared/goldens/models."""

import functools
import importlib.util
import json
import pathlib
from collections.abc import Callable, Mapping

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.core.variable_names import VariableNames
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
)
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.heads.box_head import BoxHead
from object_detection.models.heads.mask_head import MaskHead
from object_detection.models.heads.rpn_head import RpnHead
from object_detection.protos import faster_rcnn_pb2, model_pb2, pipeline_pb2
from object_detection.weights import reference

GOLDENS = pathlib.Path(__file__).resolve().parents[3] / 'shared' / 'goldens'


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

    def fill(
        self, parts: Mapping[str, keras.layers.Layer], names: VariableNames = FASTER_RCNN_NAMES
    ) -> None:
        """Gives the layers, all built, the reference's weights.

        Args:
          parts: of a detector, by their names there (`DetectionModel.parts`).
          names: of the family's variables.
        """
        recipe = _recipe()
        variables = {
            f'{part}/{variable.path.removeprefix(layer.name + "/")}': variable
            for part, layer in parts.items()
            for variable in layer.weights
        }
        keys = reference.match(variables, self._shapes, names)
        assert keys.keys() == variables.keys()
        for name, key in keys.items():
            assert tuple(variables[name].shape) == self._shapes[key], (key, name)
            weight = recipe.weight(key, self._shapes[key], self.facts['recipe']['s'])
            variables[name].assign(weight)
            self.unused.discard(key)
            self.keys[variables[name].path] = key

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


def fill_proposal_layers(golden: GoldenModel, extractor: TwoStageFeatureExtractor) -> None:
    """Fills the backbone and, where there is one, the pyramid."""
    parts = extractor.parts()
    golden.fill({name: part for name, part in parts.items() if name != 'box_classifier'})


def fill_box_classifier(golden: GoldenModel, extractor: TwoStageFeatureExtractor) -> None:
    """Fills the layers, already built, between crops and the box head, and those before."""
    golden.fill(extractor.parts())


def fill_rpn_head(golden: GoldenModel, head: RpnHead) -> None:
    golden.fill({'rpn': head})


def fill_box_head(golden: GoldenModel, head: BoxHead) -> None:
    golden.fill({'box_head': head})


def fill_mask_head(golden: GoldenModel, head: MaskHead) -> None:
    golden.fill({'mask_head': head})


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
