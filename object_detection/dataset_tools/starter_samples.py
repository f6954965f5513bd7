"""Finds the config that computes what a detector of another system computes.

Of torchvision and detectron2 it is a sample config, and of transformers that of the config.json
beside the file.

A file of weights names its layers, and those tell the kind of the detector; the number of blocks
of a ResNet tells its depth. Two detectors that differ in sizes of images alone have the same names,
and are told apart by the name of the published file.
"""

import contextlib
import importlib.resources
import os
import re
from collections.abc import Collection
from typing import NamedTuple

from object_detection.config import families
from object_detection.config.reader import parse_pipeline
from object_detection.dataset_tools.downloads.published_detectors import DETECTORS
from object_detection.errors import ConfigError, format_list
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.weights.pytorch import files
from object_detection.weights.pytorch.files import SafetensorsArrays, TorchArrays

SUFFIXES = ('.pth', '.pt', '.bin', '.pkl', '.safetensors')
_TRANSFORMERS_CONFIG = 'config.json'


class _Kind(NamedTuple):
    """A kind of detector.

    Attributes:
      sample: name of its sample config.
      marks: names of tensors, all of which its files have.
    """

    sample: str
    marks: tuple[str, ...]


_RESNET = 'backbone.body.conv1.weight'
_MOBILENET = 'backbone.body.0.0.weight'
_STEM = 'backbone.bottom_up.stem.conv1.weight'
_KEYPOINTS = 'roi_heads.keypoint_predictor.kps_score_lowres.weight'
_MASKS = 'roi_heads.mask_predictor.mask_fcn_logits.weight'
_BOXES = 'roi_heads.box_predictor.cls_score.weight'
_CLASSES = 'head.classification_head.cls_logits.weight'
_FIRST_MAP = 'head.classification_head.module_list.0.0.0.weight'
# Of the second versions, whose box heads have convolutions.
_BOX_CONVOLUTION = 'roi_heads.box_head.0.0.weight'
# The first kind of which a file has all marks is that of the file.
_KINDS = (
    _Kind('torchvision_keypointrcnn_resnet50_fpn', (_RESNET, _KEYPOINTS)),
    _Kind('torchvision_maskrcnn_resnet50_fpn_v2', (_RESNET, _MASKS, _BOX_CONVOLUTION)),
    _Kind('torchvision_maskrcnn_resnet50_fpn', (_RESNET, _MASKS)),
    _Kind('torchvision_fasterrcnn_resnet50_fpn_v2', (_RESNET, _BOXES, _BOX_CONVOLUTION)),
    _Kind('torchvision_fasterrcnn_resnet50_fpn', (_RESNET, _BOXES)),
    _Kind('torchvision_fasterrcnn_mobilenet_v3_large_fpn', (_MOBILENET, _BOXES)),
    _Kind('torchvision_fasterrcnn_mobilenet_v3_large_320_fpn', (_MOBILENET, _BOXES)),
    _Kind('torchvision_fcos_resnet50_fpn', (_RESNET, 'head.regression_head.bbox_ctrness.weight')),
    _Kind(
        'torchvision_retinanet_resnet50_fpn_v2',
        (_RESNET, _CLASSES, 'head.classification_head.conv.0.1.weight'),
    ),
    _Kind('torchvision_retinanet_resnet50_fpn', (_RESNET, _CLASSES)),
    _Kind('torchvision_ssd300_vgg16', ('backbone.scale_weight', 'backbone.features.0.weight')),
    _Kind(
        'torchvision_ssdlite320_mobilenet_v3_large', ('backbone.features.0.0.0.weight', _FIRST_MAP)
    ),
    _Kind(
        'detectron2_cascade_mask_rcnn_R_50_FPN',
        (_STEM, 'roi_heads.box_predictor.0.cls_score.weight'),
    ),
    _Kind(
        'detectron2_keypoint_rcnn_R_50_FPN', (_STEM, 'roi_heads.keypoint_head.score_lowres.weight')
    ),
    _Kind('detectron2_mask_rcnn_R_50_FPN', (_STEM, 'roi_heads.mask_head.predictor.weight')),
    _Kind('detectron2_faster_rcnn_R_50_FPN', (_STEM, _BOXES)),
    _Kind('detectron2_retinanet_R_50_FPN', (_STEM, 'head.cls_score.weight')),
)
# The last block of the third of the four stages -> depth of the ResNet.
_LAST_BLOCK = re.compile(r'(?:backbone\.body\.layer3|backbone\.bottom_up\.res4)\.(\d+)\.')
_DEPTHS = {5: 50, 22: 101, 35: 152}
_THIRD_OF_BLOCK = re.compile(r'.*\.(?:layer1|res2)\.0\.conv3\.weight')


def find(path: str) -> TrainEvalPipelineConfig | None:
    """Returns the config of a file of weights of torchvision, detectron2 or transformers.

    The depth of its ResNet is that of the file. None is returned for a file of another format.

    Raises:
      CheckpointError: if the file is damaged, or holds anything but tensors and arrays.
      ConfigError: if it is of a detector that no sample config describes.
    """
    arrays = _open(path)
    if arrays is None:
        return None
    with contextlib.closing(arrays):
        names = list(arrays.shapes)
    sample = _sample(os.path.basename(path), names)
    beside = os.path.join(os.path.dirname(path), _TRANSFORMERS_CONFIG)
    if sample is None and os.path.isfile(beside):
        return families.translator('transformers')(beside).pipeline
    if sample is None:
        known = ', '.join(kind.sample for kind in _KINDS)
        raise ConfigError.expected(
            f'--weights {path}',
            f'a detector of one of the sample configs {known}, or of transformers with its '
            f'{_TRANSFORMERS_CONFIG} in the same folder',
            format_list(sorted(names)) or 'no tensors',
        )
    folder = importlib.resources.files('object_detection') / 'samples' / 'configs'
    pipeline = parse_pipeline((folder / f'{sample}.config').read_text(), f'{sample}.config')
    _set_depth(path, pipeline, names)
    return pipeline


def _open(path: str) -> TorchArrays | SafetensorsArrays | None:
    if not path.endswith(SUFFIXES) or not os.path.isfile(path):
        return None
    with open(path, 'rb') as file:
        head = file.read(16)
    if files.is_pickle(head) or files.is_torch_zip(path):
        return TorchArrays(path)
    return SafetensorsArrays(path) if files.is_safetensors(head) else None


def _sample(file: str, names: Collection[str]) -> str | None:
    """Returns the name of the sample config of a file, by its name and the names in it."""
    names = set(names)
    found = [kind for kind in _KINDS if names.issuperset(kind.marks)]
    # Of kinds with equal marks that of the published file.
    equal = [kind.sample for kind in found if kind.marks == found[0].marks]
    published = {row.file.name: row.sample for row in DETECTORS.values()}.get(file)
    return published if published in equal else next(iter(equal), None)


def _set_depth(path: str, pipeline: TrainEvalPipelineConfig, names: Collection[str]) -> None:
    """Gives the feature extractor the depth of a ResNet."""
    last = max((int(match[1]) for name in names if (match := _LAST_BLOCK.match(name))), default=-1)
    if last < 0:
        return
    has_bottlenecks = any(_THIRD_OF_BLOCK.fullmatch(name) for name in names)
    if not has_bottlenecks or last not in _DEPTHS:
        raise ConfigError.expected(
            f'--weights {path}',
            'a ResNet of 50, 101 or 152 layers',
            f'{last + 1} {"" if has_bottlenecks else "small "}blocks in its third stage',
        )
    model = getattr(pipeline.model, pipeline.model.WhichOneof('model'))
    extractor = model.feature_extractor
    extractor.type = extractor.type.replace('resnet50', f'resnet{_DEPTHS[last]}')
    if extractor.backbone:
        extractor.backbone = extractor.backbone.replace('_50', f'_{_DEPTHS[last]}')
