"""Backbones from the ResNet v1 checkpoints of other systems: NVIDIA, TPU and Habana, TF-Slim,
tensorpack.

Most of these networks were trained on images with another normalisation. Let theirs be (x - m) / s
and ours (x - v) / t, with one value per channel, and K their first kernel. With r the geometric
mean of s / t, ours

    K' = K r t / s    moving_mean' = r (moving_mean - c)    c = sum of K (v - m) / s
    moving_variance' = r^2 (moving_variance + their epsilon) - our epsilon

gives the same result after the first norm, except at the border of the image, where padding with
zeros corresponds to other colours. The factor r is in the norm and not in the kernel, so that the
kernel keeps its magnitude and learns at the same speed. If both normalisations are equal, no value
changes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.detector import Detector
from object_detection.errors import CheckpointError, format_list
from object_detection.weights import backbones, third_party_names
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.interfaces import Arrays, Entry, WeightSource
from object_detection.weights.third_party_names import FIRST, Format


class ThirdPartyResnet(WeightSource):
    """A ResNet of another system.

    Args:
      arrays: the open file, which this object closes.
      name_format: format of its names.
    """

    def __init__(self, arrays: Arrays, name_format: Format):
        shapes = {k: shape for k, shape in sorted(arrays.shapes.items()) if is_weight(k)}
        super().__init__(arrays, f'{name_format.title} {arrays.path}', shapes)
        self._format = name_format

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names.

        Differences between its network and the detector's backbone are logged.
        """
        names, parts = detector.named_variables(), detector.variable_names.backbone_parts
        there = self._format.translate(self.shapes)
        kernel, norm = self._format.first
        layers = (kernel, f'{norm}/moving_mean', f'{norm}/moving_variance')
        first = {ours: there[ours] for ours in layers if ours in there}
        entries = {ours: self._entry(theirs) for ours, theirs in there.items()}
        entries |= self._renormalized(first, detector)
        backbones.warn_of_differences(
            self.description, self._format.options, detector, self._format.remark
        )
        return {
            backbones.name_in_detector(ours, names, parts): each for ours, each in entries.items()
        }

    def _renormalized(self, there: Mapping[str, str], detector: Detector) -> dict[str, Entry]:
        """Returns the first convolution and its norm for the detector's images; see the module.

        Args:
          there: our names -> their names, for the variables that change.
          detector: detector whose images they process.
        """

        first, norm = self._format.first
        variance = f'{norm}/moving_variance'

        def read(ours: str) -> np.ndarray:
            change = change_of_pixels(self._format.pixels, detector)
            theirs = self._format.epsilon
            epsilon = _epsilon_of(detector, norm, theirs)
            value = self._read(there[ours])
            if change.is_none and np.isclose(epsilon, theirs, rtol=1e-3, atol=0):
                return value
            if ours == variance:
                return np.maximum(change.ratio**2 * (value + theirs) - epsilon, 0)
            kernel = self._read(there[first])
            if self._format.pixels.is_bgr:
                kernel = kernel[:, :, ::-1]
            kernel = kernel * change.factor[:, np.newaxis]  # [7, 7, 3, 64], RGB
            if ours == first:
                return change.ratio * kernel
            constant = np.einsum('hwio,i->o', kernel, change.shift)
            return change.ratio * (value - constant)

        keys = {ours: tuple(dict.fromkeys((name, there[first]))) for ours, name in there.items()}
        keys[variance] = keys.get(variance, ())[:1]
        return {
            ours: Entry(keys[ours], self.shapes[name], lambda ours=ours: read(ours))
            for ours, name in there.items()
        }

    def _read(self, name: str) -> np.ndarray:
        return np.asarray(self._arrays.read(name), np.float32)


class Change(NamedTuple):
    """Converts their normalised images to ours, with one number per channel, red first.

    Attributes:
      factor: t / s.
      shift: (v - m) / t; `factor * shift` is their normalised value of a pixel of our mean colour.
      ratio: r.
      is_none: whether both normalisations are equal up to rounding.
    """

    factor: np.ndarray
    shift: np.ndarray
    ratio: float
    is_none: bool


def change_of_pixels(pixels: third_party_names.Pixels, detector: Detector) -> Change:
    """Returns the change from the images of a system to those of a detector."""
    mean, std = np.array(pixels.mean), np.array(pixels.std)
    ends = tf.reshape(tf.constant([0.0, 255.0]), [2, 1, 1, 1]) * tf.ones([1, 1, 1, 3])
    black, white = np.asarray(detector.normalize(ends), np.float64)[:, 0, 0]
    our_std = 255.0 / (white - black)
    our_mean = -black * our_std
    factor = our_std / std
    shift = (our_mean - mean) / our_std
    ratio = float(np.exp(-np.mean(np.log(factor))))
    same = np.allclose(factor, 1, rtol=1e-5) and np.allclose(our_mean, mean, atol=1e-3)
    return Change(factor, shift, ratio, same and not pixels.is_bgr)


def _epsilon_of(detector: Detector, name: str, default: float) -> float:
    """Returns the epsilon of the norm after the first convolution; `default` if there is none."""
    backbone = detector.parts().get(detector.variable_names.backbone_parts[0])
    norm = name and backbone and backbone.get_layer(name)
    return getattr(norm, 'epsilon', default)


def recognize(arrays: Arrays, formats: tuple[Format, ...]) -> ThirdPartyResnet:
    """Returns an open file as a checkpoint of the format that its names have.

    Raises:
      CheckpointError: if the names match none of the formats.
    """
    for name_format in formats:
        if FIRST in name_format.translate(arrays.shapes):
            return ThirdPartyResnet(arrays, name_format)
    known = ', '.join(f'{each.title} ({each.example})' for each in formats)
    received = format_list(sorted(arrays.shapes)) or 'no variables'
    raise CheckpointError.expected(
        arrays.path, f'the names of one of these with 50, 101 or 152 layers: {known}', received
    )
