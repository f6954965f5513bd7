"""Checkpoints of the TensorFlow Object Detection API (TF 2), and of its image classifiers."""

from collections.abc import Collection, Mapping
from typing import Self

from object_detection.errors import CheckpointError
from object_detection.weights import (
    backbone_differences,
    checkpoint_files,
    reference_names,
    resnet_names,
)
from object_detection.weights.arrays import CheckpointArrays
from object_detection.weights.checkpoint_contents import listing
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from object_detection.weights.comparison import check_backbones
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Detector, Entry

_DETECTOR, _CLASSIFIER = 'model/', 'feature_extractor/'
_STEP = f'step{VALUE_SUFFIX}'
_SLOTS = '/.OPTIMIZER_SLOT/'
_AVERAGE = f'{_SLOTS}optimizer/average{VALUE_SUFFIX}'


def is_reference(keys: Collection[str]) -> bool:
    """Tells these checkpoints by their keys."""
    beginnings = (f'{_DETECTOR}_', f'{_CLASSIFIER}layer')
    return any(k.startswith(beginnings) and k.endswith(VALUE_SUFFIX) for k in keys)


def read_step(prefix: str) -> int:
    """Returns the step of a checkpoint of a training; 0 of one that does not say."""
    reader = checkpoint_files.open_reader(prefix)
    if _STEP not in reader.get_variable_to_shape_map():
        return 0
    with checkpoint_files.reading(prefix):
        return int(reader.get_tensor(_STEP))


class ReferenceCheckpoint:
    """An open checkpoint of that program, of a two-stage detector or of a backbone.

    Args:
      arrays: closed with this.
      averages: whether a variable gets the moving average that the checkpoint holds of it, as in
        that program's evaluation; its fine-tuning takes the weights of the last step.

    Attributes:
      description: for the log.
      types: the checkpoint types that it can serve.
      shapes: key -> shape, of all weights of its model.
    """

    def __init__(self, arrays: CheckpointArrays, *, averages: bool = False):
        self._arrays = arrays
        self._takes_averages = averages
        self.shapes: Mapping[str, tuple[int, ...]] = {
            key: shape for key, shape in sorted(arrays.shapes.items()) if _is_weight(key)
        }
        is_detector = any(key.startswith(_DETECTOR) for key in self.shapes)
        self.types = CHECKPOINT_TYPES if is_detector else ('classification',)
        self.description = f'checkpoint {arrays.path} of the TensorFlow Object Detection API'
        if any(key.endswith(_AVERAGE) for key in arrays.shapes):
            self.description += f', {"its" if averages else "without its"} moving averages'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns what the checkpoint holds for a detector, by the detector's names.

        Raises:
          CheckpointError: if its backbone is another one.
        """
        names = detector.named_variables()
        self._check_backbone(names)
        backbone_differences.warn_of_images(self.description, detector)
        keys = reference_names.match(names, self.shapes)
        return {name: self._entry(key) for name, key in keys.items()}

    def _check_backbone(self, names: Collection[str]) -> None:
        """Compares depths: layers that are merely counted would be taken for others."""
        layers = reference_names.backbone(self.shapes)
        kernels = [self.shapes[layer['kernel']] for layer in layers if 'kernel' in layer]
        # A classifier's top is no convolution.
        resnet = resnet_names.bottleneck_layers(sum(len(shape) == 4 for shape in kernels))
        there = [f'backbone/{layer}_conv/kernel' for layer in resnet]
        check_backbones(names, there, self._arrays.path)
        expected = len(reference_names.backbone_layers(names))
        if len(layers) < expected:
            raise CheckpointError(
                f'{self._arrays.path}: expected the backbone of '
                f'model.faster_rcnn.feature_extractor.type, of {expected} layers with variables. '
                f'Received: {len(layers)} of a backbone; it holds {listing(self.shapes)}.'
            )

    def _entry(self, key: str) -> Entry:
        average = key.removesuffix(VALUE_SUFFIX) + _AVERAGE
        if not self._takes_averages or average not in self._arrays.shapes:
            return Entry((key,), self.shapes[key], lambda: self._arrays.read(key))
        shape = self._arrays.shapes[average]
        return Entry((average, key), shape, lambda: self._arrays.read(average))


def _is_weight(key: str) -> bool:
    """Whether a key is neither of an optimizer nor of the bookkeeping."""
    return key.startswith((_DETECTOR, _CLASSIFIER)) and (
        key.endswith(VALUE_SUFFIX) and _SLOTS not in key
    )
