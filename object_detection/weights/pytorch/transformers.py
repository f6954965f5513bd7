"""Detection transformers in files of transformers, whose names are in `transformers_names`.

Names of earlier versions, and of RF-DETR's own files, are brought to those of today first. Files
do not say how their images were normalised (a preprocessor_config.json does), so that the config
counts and nothing is converted.
"""

import logging
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.core.detector import Detector
from object_detection.weights import backbones
from object_detection.weights.checkpoint_contents import is_weight
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Arrays, Entry, WeightSource
from object_detection.weights.pytorch import layouts, transformers_backbones, transformers_names
from object_detection.weights.pytorch.transformers_names import Rows
from object_detection.weights.third_party_names import IMAGENET, Pixels
from object_detection.weights.third_party_resnets import change_of_pixels

_logger = logging.getLogger(__name__)

_UNIT = transformers_backbones.RESNET_D.pixels
_BACKBONES = (
    transformers_backbones.RESNET_D,
    transformers_backbones.RESNET,
    transformers_backbones.HGNET_V2,
    transformers_backbones.DINOV2,
)
# Heads that several layers of transformers own.
_DECODER = 'model.decoder.'


class Kind(NamedTuple):
    """A detector of transformers.

    Attributes:
      title: title of its files.
      example: one of its names.
      has: pattern of a name that files of this kind alone have.
      rows: its names, see `transformers_names`.
      pixels: usual normalisation of its images.
    """

    title: str
    example: str
    has: str
    rows: Rows
    pixels: Pixels


# The first one that a file fits counts.
KINDS = (
    Kind(
        'D-FINE of transformers',
        'model.decoder.lqe_layers.0.reg_conf.layers.0.weight',
        r'model\.decoder\.lqe_layers\.',
        transformers_names.D_FINE,
        _UNIT,
    ),
    Kind(
        'RF-DETR of transformers',
        'model.reference_point_embed.weight',
        r'model\.reference_point_embed\.weight$',
        transformers_names.RF_DETR,
        IMAGENET,
    ),
    Kind(
        'RT-DETR v2 of transformers',
        'model.decoder.layers.0.encoder_attn.n_points_scale',
        r'model\.decoder\..*\.n_points_scale$',
        transformers_names.RT_DETR_V2,
        _UNIT,
    ),
    Kind(
        'RT-DETR of transformers',
        'model.encoder_input_proj.0.0.weight',
        r'model\.encoder_input_proj\.',
        transformers_names.RT_DETR,
        _UNIT,
    ),
    Kind(
        'DETR of transformers',
        'model.query_position_embeddings.weight',
        r'model\.query_position_embeddings\.weight$',
        transformers_names.DETR,
        IMAGENET,
    ),
)

# Pattern of a name of earlier versions -> the name today, one after another.
_RENAMED: Rows = (
    (r'^detr\.', ''),
    (r'^model\.backbone\.position_embedding\.', 'model.position_embedding.'),
    (r'^model\.encoder\.encoder\.(\d+)\.layers', r'model.encoder.aifi.\1.layers'),
    (r'^(model\..*_attn)\.out_proj\.', r'\1.o_proj.'),
)
# RF-DETR's own names; all but those of heads are below `model` today.
_OF_RF_DETR: Rows = (
    (r'^backbone\.0\.encoder\.encoder\.', 'model.backbone.backbone.'),
    (r'^backbone\.0\.projector\.stages\.0\.1\.', 'model.backbone.projector.layer_norm.'),
    (r'^backbone\.0\.projector\.stages\.0\.0\.', 'model.backbone.projector.projector_layer.'),
    (r'(projector_layer)\.m\.', r'\1.bottlenecks.'),
    (r'(projector_layer\..*)cv([12])\.bn\.', r'\1conv\2.norm.'),
    (r'(projector_layer\..*)cv([12])\.', r'\1conv\2.'),
    (r'^transformer\.', 'model.'),
    (r'^refpoint_embed\.', 'model.reference_point_embed.'),
    (r'^query_feat\.', 'model.query_feat.'),
    (r'^(model\.decoder\.layers\.\d+)\.norm1\.', r'\1.self_attn_layer_norm.'),
    (r'^(model\.decoder\.layers\.\d+)\.norm2\.', r'\1.cross_attn_layer_norm.'),
    (r'^(model\.decoder\.layers\.\d+)\.norm3\.', r'\1.layer_norm.'),
    (r'^(model\.decoder\.layers\.\d+)\.linear([12])\.', r'\1.mlp.fc\2.'),
    (r'^model\.decoder\.norm\.', 'model.decoder.layernorm.'),
    (r'attention\.attention\.query\.', 'attention.q_proj.'),
    (r'attention\.attention\.key\.', 'attention.k_proj.'),
    (r'attention\.attention\.value\.', 'attention.v_proj.'),
    (r'attention\.output\.dense\.', 'attention.o_proj.'),
    (r'^(model\.decoder\..*self_attn)\.out_proj\.', r'\1.o_proj.'),
)
_OWN_RF_DETR = 'refpoint_embed.weight'
# Three layers in one array, in this order.
_JOINED = re.compile(r'(model\.decoder\..*self_attn)\.in_proj_(weight|bias)')
_PARTS = ('q_proj', 'k_proj', 'v_proj')
# The layers of encoders and decoders, of which a config has fewer or more.
_LAYER = re.compile(r'model\.(encoder|decoder)\.(aifi\.\d+\.)?layers\.\d+\.')
# The hidden layers of attention's blocks, by whether the file is D-FINE's.
_HIDDEN = re.compile(r'(model\..*layers\.\d+)\.fc([12])\.')


class _Array(NamedTuple):
    """Where an array of today is: the name in the file, and which third of it, if not all."""

    key: str
    part: int | None = None


def _today(keys: Sequence[str]) -> dict[str, _Array]:
    """Returns the names of today -> where their arrays are."""
    renamed = [*_RENAMED, *(_OF_RF_DETR if _OWN_RF_DETR in keys else ())]
    is_fine = any(re.search(r'decoder\.lqe_layers\.', key) for key in keys)
    found = {}
    for key in keys:
        name = key
        for pattern, there in renamed:
            name = re.sub(pattern, there, name)
        if match := _HIDDEN.match(name):
            layer = f'layers.{int(match[2]) - 1}' if is_fine else f'fc{match[2]}'
            name = f'{match[1]}.mlp.{layer}.{name[match.end() :]}'
        if match := _JOINED.fullmatch(name):
            for i, part in enumerate(_PARTS):
                found[f'{match[1]}.{part}.{match[2]}'] = _Array(key, i)
        else:
            found.setdefault(name, _Array(key))
    return found


class _Renamed:
    """An open file with the names of today; see `interfaces.Arrays`.

    Args:
      arrays: the file.
    """

    def __init__(self, arrays: Arrays):
        self.path = arrays.path
        self._arrays, self._places = arrays, _today(list(arrays.shapes))
        self.shapes = {name: self._shape(place) for name, place in self._places.items()}
        self.dtypes = {name: arrays.dtypes[place.key] for name, place in self._places.items()}

    def _shape(self, place: _Array) -> tuple[int, ...]:
        shape = self._arrays.shapes[place.key]
        if place.part is None or not shape:
            return shape
        return (shape[0] // len(_PARTS), *shape[1:])

    def read(self, name: str) -> np.ndarray:
        place = self._places[name]
        array = self._arrays.read(place.key)
        if place.part is None or not array.ndim:
            return array
        size = len(array) // len(_PARTS)
        return array[place.part * size : (place.part + 1) * size]

    def close(self) -> None:
        self._arrays.close()

    def in_file(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the names in the file of the arrays of some names of today."""
        return tuple(dict.fromkeys(self._places[name].key for name in names))


class TransformersWeights(WeightSource):
    """A detection transformer of transformers.

    Args:
      arrays: the open file, which this object closes.
      kind: what its names are of.
    """

    def __init__(self, arrays: Arrays, kind: Kind):
        shapes = {k: shape for k, shape in sorted(arrays.shapes.items()) if is_weight(k)}
        super().__init__(arrays, f'{kind.title} {arrays.path}', shapes, CHECKPOINT_TYPES)
        self._kind, self._today = kind, _Renamed(arrays)

    def entries(self, detector: Detector) -> dict[str, Entry]:
        """Returns the file's entries for a detector, by the detector's names.

        Differences between the networks that no conversion makes up for are logged.
        """
        entries = self._backbone(detector)
        for name in detector.named_variables():
            part = name.partition('/')[0]
            if part in detector.variable_names.backbone_parts:
                continue
            key = transformers_names.key(name, self._kind.rows)
            for candidate in (key, key.removeprefix(_DECODER)):
                if candidate in self._today.shapes:
                    entries[name] = self._arranged(name, candidate)
                    break
        return {
            name: entry._replace(keys=self._today.in_file(entry.keys))
            for name, entry in entries.items()
        }

    def further_layers(self, unused: Collection[str]) -> list[str]:
        layers = [name for name in self._today.shapes if _LAYER.match(name)]
        return [key for key in self._today.in_file(layers) if key in unused]

    def _arranged(self, name: str, key: str) -> Entry:
        """Returns an array in the layout of our variable of a name."""
        shape, is_depthwise = self._today.shapes[key], name.endswith(layouts.DEPTHWISE_KERNEL)
        if len(shape) != 4 and not name.endswith('/kernel'):
            return Entry((key,), shape, lambda: self._today.read(key))
        return Entry(
            (key,),
            layouts.transposed_shape(shape, is_depthwise),
            lambda: layouts.transposed(self._today.read(key), is_depthwise),
        )

    def _backbone(self, detector: Detector) -> dict[str, Entry]:
        for theirs in _BACKBONES:
            there = theirs.translate(self._today.shapes)
            if theirs.first.kernel in there:
                break
        else:
            return {}
        backbones.warn_of_differences(self.description, theirs.options, detector)
        self._log_images(detector)
        parts, names = detector.variable_names.backbone_parts, detector.named_variables()
        return {
            backbones.name_in_detector(ours, names, parts): self._arranged(ours, key)
            for ours, key in there.items()
        }

    def _log_images(self, detector: Detector) -> None:
        """Logs if a detector has images of another normalisation than is usual."""
        pixels = self._kind.pixels
        if not change_of_pixels(pixels, detector).is_none:
            _logger.info(
                'Detectors as %s mostly see images of the mean %s and the deviation %s, in red, '
                'green and blue; %s gives others, which weights that were trained with them need.',
                self.description,
                list(pixels.mean),
                list(pixels.std),
                detector.variable_names.backbone_field,
            )


def find(arrays: Arrays) -> TransformersWeights | None:
    """Returns an open file as weights of transformers; None if it is none of them."""
    names = _today(list(arrays.shapes))
    for kind in KINDS:
        if any(re.match(kind.has, name) for name in names):
            return TransformersWeights(arrays, kind)
    return None
