"""Detectors and backbones of torchvision and detectron2, whose names are in `names`.

Kernels are put in our layout (`layouts`). Images are converted as in `third_party_resnets`.
"""

import functools
import logging
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from object_detection.core.detector import Detector
from object_detection.errors import CheckpointError, format_list
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Arrays, Entry, WeightSource
from object_detection.weights.pytorch import layouts, names, transformers
from object_detection.weights.pytorch.arrangements import Here
from object_detection.weights.pytorch.files import SafetensorsArrays, TorchArrays
from object_detection.weights.pytorch.names import Row, System
from object_detection.weights.third_party_names import Pixels
from object_detection.weights.third_party_resnets import ThirdPartyResnet, change_of_pixels

_logger = logging.getLogger(__name__)

_OF_LAYER = {'weight': 'kernel', 'bias': 'bias'}
_OF_NORM = {
    **{'weight': 'gamma', 'bias': 'beta'},
    **{'running_mean': 'moving_mean', 'running_var': 'moving_variance'},
}
_NORM = re.compile(r'.*_bn(_\d+)?')
_OF_LEVEL = re.compile(r'box_predictor/(?:box_codes|classes)_(\d+)')
_BEFORE_DENSE = re.compile(r'(fpn/smoothing_\d+|box_classifier/conv_\d+)/kernel')
_PIXELS = ('pixel_mean', 'pixel_std')
# Of an image to generate anchors for, in pixels.
_SIDE = 512


class TorchWeights(WeightSource):
    """A detector, or its backbone, of one of `names.SYSTEMS`.

    Args:
      arrays: the open file, which this object closes.
      system: its system.
    """

    def __init__(self, arrays: TorchArrays | SafetensorsArrays, system: System):
        shapes = {k: shape for k, shape in sorted(arrays.shapes.items()) if is_weight(k)}
        taken = f', its {arrays.taken!r}' if arrays.taken else ''
        super().__init__(
            arrays,
            f'{system.title} {arrays.path}{taken}',
            shapes,
            CHECKPOINT_TYPES if system.rows else CHECKPOINT_TYPES[:1],
        )
        self._system = system

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names.

        Differences between the networks that no conversion makes up for are logged.
        """
        backbone = detector.parts().get(detector.variable_names.backbone_parts[0])
        theirs = self._system.backbone
        # Its first norm gets our epsilon here, and then as all others by its scale.
        epsilon = getattr(_layer(backbone, theirs.first.norm), 'epsilon', theirs.epsilon)
        there = theirs.translate(self.shapes).items()
        depthwise = {name for ours, name in there if ours.endswith(layouts.DEPTHWISE_KERNEL)}
        source = ThirdPartyResnet(
            layouts.Transposed(self._arrays, depthwise), theirs._replace(epsilon=epsilon)
        )
        source.description = self.description
        entries = self._with_epsilon(source.entries(detector), detector)
        self._log_images(detector)
        layers = list(dict.fromkeys(k.rpartition('/')[0] for k in detector.named_variables()))
        here_of = functools.cache(functools.partial(self._here, detector))
        for ours, theirs, row in names.match(self._system, layers, list(self.shapes)):
            here = here_of(level[1] if (level := _OF_LEVEL.match(ours)) else '0')
            variables = _OF_NORM if _NORM.fullmatch(ours) else _OF_LAYER
            if f'{ours}/{layouts.DEPTHWISE_KERNEL}' in detector.named_variables():
                variables = {'weight': layouts.DEPTHWISE_KERNEL}
            for suffix, variable in variables.items():
                if f'{theirs}.{suffix}' in self.shapes:
                    entries[f'{ours}/{variable}'] = self._arranged(
                        f'{theirs}.{suffix}', row, here, variable == layouts.DEPTHWISE_KERNEL
                    )
        return entries

    def _arranged(self, key: str, row: Row, here: Here, is_depthwise: bool) -> Entry:
        """Returns an array in our order and layout."""
        shape = self.shapes[key]
        if not shape:
            return self._entry(key)

        def read() -> np.ndarray:
            array = row.arrange(self._arrays.read(key), here)
            array = _channels_last(array, here.crop_depth) if row.sees_crops else array
            return layouts.transposed(array, is_depthwise)

        try:
            # The first axis alone changes its size.
            count = len(row.arrange(np.zeros(shape[:1], bool), here))
        except ValueError:  # Outputs of another number than anchors can have; they do not fit.
            count = shape[0]
        return Entry((key,), layouts.transposed_shape((count, *shape[1:]), is_depthwise), read)

    def _here(self, detector: Detector, level: str) -> Here:
        """Returns what the outputs of a level depend on, if its heads are its own."""
        shapes = {name: tuple(v.shape) for name, v in detector.named_variables().items()}

        def outputs(layer: str) -> int:
            return shapes.get(f'{layer}/bias', (0,))[-1]

        heads = (f'box_predictor/box_codes_{level}', f'box_predictor/classes_{level}')
        codes = ('rpn/box_codes_0', 'box_predictor/box_codes', heads[0])
        num_anchors = max(map(outputs, codes)) // 4
        if not num_anchors:
            return Here()
        of_crops = [name for name in shapes if _BEFORE_DENSE.fullmatch(name)]
        return Here(
            self._anchor_order(detector, num_anchors),
            outputs('rpn/objectness_0') // num_anchors,
            max(map(outputs, ('box_predictor/classes', heads[1]))) // num_anchors
            > detector.num_classes,
            shapes[min(of_crops)][-1] if of_crops else 0,
        )

    def _anchor_order(self, detector: Detector, num_anchors: int) -> Sequence[int]:
        """Returns for each anchor of a cell its number there, by its shape and its size."""
        theirs = self._system.anchors.get(num_anchors, ())
        generator = getattr(detector, 'anchor_generator', None)
        counts = generator.num_anchors_per_location() if generator else []
        if num_anchors not in counts or not theirs:
            return range(num_anchors)
        cells = generator.generate([(1, 1)] * len(counts), _SIDE, _SIDE)
        # Sizes of coarser levels may be limited, which changes the ratios.
        cell = np.asarray(cells[counts.index(num_anchors)])
        height, width = (cell[:, 2:] - cell[:, :2]).T
        ours = list(zip(width / height, height * width, strict=True))
        # Rounded to whole pixels, boxes of one ratio differ in it.
        known = np.log(sorted({ratio for ratio, _ in theirs}))
        nearest = np.abs(np.log(width / height)[:, np.newaxis] - known).argmin(axis=1)
        order = sorted(range(num_anchors), key=lambda i: (nearest[i], ours[i][1]))
        their_order = sorted(range(num_anchors), key=theirs.__getitem__)
        ratios = [[each[i][0] for i in o] for each, o in ((ours, order), (theirs, their_order))]
        # Sizes may be rounded to whole pixels.
        if not np.allclose(*ratios, rtol=0.06, atol=0.01):
            _logger.warning(
                '%s is of anchors of the aspect ratios (width / height) %s, here %s: its box '
                'codes and scores do not hold for these.',
                self.description,
                *(sorted({float(ratio) for ratio in each}) for each in reversed(ratios)),
            )
        found = dict(zip(order, their_order, strict=True))
        return [found[i] for i in range(num_anchors)]

    def _log_images(self, detector: Detector) -> None:
        """Logs if the first convolution is converted to images of another normalisation."""
        pixels = self._system.backbone.pixels
        if change_of_pixels(pixels, detector).is_none:
            return
        _logger.info(
            '%s sees %s images of the mean %s and the deviation %s, in red, green and blue; its '
            'first convolution and the norm after it are converted to the images of %s.',
            self.description,
            'BGR' if pixels.is_bgr else 'RGB',
            list(pixels.mean),
            list(pixels.std),
            detector.variable_names.backbone_field,
        )

    def _with_epsilon(self, entries: dict[str, Entry], detector: Detector) -> dict[str, Entry]:
        """Returns the entries of a backbone whose norms give the same with the detector's epsilon.

        With e there and f here the scale is multiplied by sqrt((variance + f) / (variance + e)).
        """
        theirs = self._system.backbone.epsilon
        scaled = {}
        for name, entry in entries.items():
            part, layer, variable = name.split('/')
            model = detector.parts().get(part)
            epsilon = getattr(_layer(model, layer), 'epsilon', theirs)
            variance = entries.get(f'{part}/{layer}/moving_variance')
            if variable != 'gamma' or np.isclose(epsilon, theirs):
                continue
            if variance is None or variance.shape != entry.shape:  # They do not fit.
                continue

            def read(gamma=entry, key=variance.keys[0], epsilon=epsilon) -> np.ndarray:
                values = np.asarray(self._arrays.read(key), np.float64)
                return gamma.read() * np.sqrt((values + epsilon) / (values + theirs))

            scaled[name] = Entry((*entry.keys, *variance.keys), entry.shape, read)
        if scaled:
            _logger.info(
                '%s has norms with the epsilon %g, and the backbone here with another one: their '
                'scale is converted.',
                self.description,
                theirs,
            )
        return entries | scaled


def _channels_last(kernel: np.ndarray, depth: int) -> np.ndarray:
    """Orders the inputs of a layer over square crops: (channel, y, x) -> (y, x, channel)."""
    if kernel.ndim != 2 or not depth or kernel.shape[1] % depth:
        return kernel
    side = math.isqrt(kernel.shape[1] // depth)
    if side**2 * depth != kernel.shape[1]:
        return kernel
    crops = kernel.reshape(-1, depth, side, side)
    return crops.transpose(0, 2, 3, 1).reshape(kernel.shape)


def _layer(model: Any, name: str) -> Any:
    layers = getattr(model, 'layers', ())
    return next((layer for layer in layers if layer.name == name), None)


def recognize(arrays: TorchArrays | SafetensorsArrays) -> WeightSource:
    """Returns an open file as weights of the system that its names are of.

    Raises:
      CheckpointError: if they are of no known system.
    """
    if (found := transformers.find(arrays)) is not None:
        return found
    for system in names.SYSTEMS:
        is_named = any(name.startswith(system.begins) for name in arrays.shapes)
        backbone = system.backbone
        if is_named and backbone.first.kernel in backbone.translate(arrays.shapes):
            if pixels := _pixels(arrays):
                backbone = backbone._replace(pixels=pixels)
            return TorchWeights(arrays, system._replace(backbone=backbone))
    all_known = (*names.SYSTEMS, *transformers.KINDS)
    known = dict.fromkeys(f'{each.title} ({each.example})' for each in all_known)
    received = format_list(sorted(arrays.shapes)) or 'no tensors'
    raise CheckpointError.expected(
        arrays.path, f'the names of one of these: {", ".join(known)}', received
    )


def _pixels(arrays: Arrays) -> Pixels | None:
    """Returns the normalisation of images that detectron2 has stored, of BGR; None without.

    Raises:
      CheckpointError: if its numbers are none to normalise images with.
    """
    if not all(math.prod(arrays.shapes.get(name, ())) == 3 for name in _PIXELS):
        return None
    mean, std = (np.asarray(arrays.read(name), np.float64).ravel()[::-1] for name in _PIXELS)
    for name, values, least in zip(_PIXELS, (mean, std), (-np.inf, 0.0), strict=True):
        if not np.all(np.isfinite(values) & (values > least)):
            kind = 'finite' if least < 0 else 'positive, finite'
            raise CheckpointError.expected(
                f'{arrays.path}: {name}', f'3 {kind} numbers', values[::-1].tolist()
            )
    return Pixels(tuple(mean.tolist()), tuple(std.tolist()), is_bgr=True)
