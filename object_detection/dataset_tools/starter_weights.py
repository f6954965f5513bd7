"""Finds pretrained weights for a training."""

import dataclasses
import functools
import glob
import os
import re
from collections.abc import Callable

from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools import starter_samples
from object_detection.dataset_tools.downloads import known_files
from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

DEFAULT_FOLDER = 'weights'
# The first file is written by a training, the second one is in archives of models.
_CONFIG_NAMES = ('resolved_pipeline.config', 'pipeline.config')
_KERAS_RESNET = re.compile(r'^resnet(50|101|152)_weights_\w*notop\.h5$')
# As torchvision publishes them.
_TORCH_RESNET = re.compile(r'^resnet(18|34|50|101|152)-[0-9a-f]{8}\.pth$')
_KERAS_MOBILENET = re.compile(r'^mobilenet_v2_weights_\w*_1\.0_\d+_no_top\.h5$')
_DOWNLOADED = 'a file that `tfod weights download` wrote for {}, a folder of them'
_TORCHVISION = 'a ResNet of torchvision (resnet50-0676ba61.pth)'
_DETECTORS = (
    'a detector of torchvision or detectron2 (.pth, .pkl, .safetensors), one of transformers in a '
    'folder with its config.json, or the folder of a trained detector with its config (a zoo '
    'model, a model_dir)'
)
_RESNETS, _MOBILENET = 'resnet50, resnet101 or resnet152', 'mobilenet_v2'
_NONE_FIT = ', as there are no weights of a ResNet-vd alone; --backbone names another network'


@dataclasses.dataclass(frozen=True)
class Weights:
    """Initial weights of a training.

    Attributes:
      path: the value of `train_config.fine_tune_checkpoint`.
      kind: the value of `train_config.fine_tune_checkpoint_type`.
      depth: depth of their ResNet; 0 for a MobileNet or a whole detector.
      is_torchvision: whether it is a ResNet of torchvision, with strides and padding of its own.
      pipeline: the config of their detector; None for a backbone.
    """

    path: str
    kind: str
    depth: int = 0
    is_torchvision: bool = False
    pipeline: TrainEvalPipelineConfig | None = None


def find(
    path: str, *, is_mobile: bool = False, is_transformer: bool = False, backbone: str = ''
) -> Weights | None:
    """Returns the weights at `path`; '' searches the folder `weights`, which need not exist.

    Args:
      path: a file of a backbone, a folder of such files, the folder of a detector, or a detector of
        torchvision, detectron2 or transformers.
      is_mobile: whether the backbone is MobileNet v2, not a ResNet.
      is_transformer: whether it is a ResNet-vd, for which files of ResNets are no weights.
      backbone: name of the backbone of a config; '' is one of those three.

    Raises:
      ConfigError: if a path is given that holds no weights of a known kind.
      CheckpointError: if a file of PyTorch is damaged, or holds anything but tensors and arrays.
    """
    found_in: Callable[[str], Weights | None] = _mobilenet if is_mobile else _resnet
    expected = f'{_DOWNLOADED.format(_RESNETS)}, {_TORCHVISION}, {_DETECTORS}'
    if backbone or is_mobile:
        expected = f'{_DOWNLOADED.format(backbone or _MOBILENET)}, {_DETECTORS}'
    if backbone:
        found_in = functools.partial(_published, backbone)
    elif is_transformer:
        found_in, expected = _no_file, _DETECTORS + _NONE_FIT
    if not path:
        return found_in(DEFAULT_FOLDER)
    for name in _CONFIG_NAMES:
        config = os.path.join(path, name)
        if os.path.isfile(config):
            return Weights(_checkpoint(path), 'detection', pipeline=read_pipeline(config))
    found = found_in(path)
    if found is None and (sample := starter_samples.find(path)) is not None:
        return Weights(path, 'full', pipeline=sample)
    if found is None:
        state = 'other files' if os.path.exists(path) else 'there is no such file or folder'
        raise ConfigError(f'--weights {path}: expected {expected}. Received: {state}.')
    return found


def _files(path: str) -> list[str]:
    """Returns the files of weights in a folder, or the given file."""
    if not os.path.isdir(path):
        return glob.glob(path)
    return [name for each in ('*.pth', '*.h5') for name in glob.glob(os.path.join(path, each))]


def published(backbone: str) -> str | None:
    """Returns the name of the published file of a backbone, or None if there is none."""
    names = (
        os.path.basename(weights.file.name)
        for weights in known_files.WEIGHTS.values()
        if weights.backbone == backbone
    )
    return next(names, None)


def _no_file(path: str) -> None:
    """Returns None: no file has the weights of this backbone."""


def _published(backbone: str, path: str) -> Weights | None:
    """Returns the published file of a backbone in a folder, or the given file."""
    if os.path.isdir(path):
        path = os.path.join(path, published(backbone) or '')
    return Weights(path, 'classification') if os.path.isfile(path) else None


def _mobilenet(path: str) -> Weights | None:
    names = [n for n in _files(path) if _KERAS_MOBILENET.match(os.path.basename(n))]
    return Weights(names[0], 'classification') if names else None


def _resnet(path: str) -> Weights | None:
    """Returns the shallowest ResNet among the files of a folder, or the given file."""
    found = {}
    for name in _files(path):
        for pattern in (_TORCH_RESNET, _KERAS_RESNET):
            if match := pattern.match(os.path.basename(name)):
                found[int(match[1])] = name, pattern is _TORCH_RESNET
    if not found:
        return None
    depth = min(found)
    name, is_torchvision = found[depth]
    return Weights(name, 'classification', depth=depth, is_torchvision=is_torchvision)


def _checkpoint(folder: str) -> str:
    """Returns the folder with the checkpoint of a zoo model or of a model_dir."""
    inner = os.path.join(folder, 'checkpoint')
    return inner if os.path.isdir(inner) else folder
