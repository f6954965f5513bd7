"""Finds pretrained weights for a training."""

import dataclasses
import glob
import os
import re

from object_detection.config.reader import read_pipeline
from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

DEFAULT_FOLDER = 'weights'
# The first file is written by a training, the second one is in archives of models.
_CONFIG_NAMES = ('resolved_pipeline.config', 'pipeline.config')
_KERAS_RESNET = re.compile(r'^resnet(50|101|152)_weights_\w*notop\.h5$')
_EXPECTED = (
    'a file that `tfod weights download` wrote for resnet50, resnet101 or resnet152, a folder of '
    'them, or the folder of a trained detector with its config (a zoo model, a model_dir)'
)


@dataclasses.dataclass(frozen=True)
class Weights:
    """Initial weights of a training.

    Attributes:
      path: the value of `train_config.fine_tune_checkpoint`.
      kind: the value of `train_config.fine_tune_checkpoint_type`.
      depth: depth of their ResNet; 0 for a whole detector.
      pipeline: the config of their detector; None for a backbone.
    """

    path: str
    kind: str
    depth: int = 0
    pipeline: TrainEvalPipelineConfig | None = None


def find(path: str) -> Weights | None:
    """Returns the weights at `path`; '' searches the folder `weights`, which need not exist.

    Raises:
      ConfigError: if a path is given that holds no weights of a known kind.
    """
    if not path:
        return _backbone(DEFAULT_FOLDER)
    for name in _CONFIG_NAMES:
        config = os.path.join(path, name)
        if os.path.isfile(config):
            return Weights(_checkpoint(path), 'detection', pipeline=read_pipeline(config))
    found = _backbone(path)
    if found is None:
        state = 'other files' if os.path.exists(path) else 'there is no such file or folder'
        raise ConfigError(f'--weights {path}: expected {_EXPECTED}. Received: {state}.')
    return found


def _backbone(path: str) -> Weights | None:
    """Returns the shallowest ResNet among the files of a folder, or the given file."""
    names = glob.glob(os.path.join(path, '*.h5')) if os.path.isdir(path) else glob.glob(path)
    found = {}
    for name in names:
        match = _KERAS_RESNET.match(os.path.basename(name))
        if match:
            found[int(match[1])] = name
    if not found:
        return None
    depth = min(found)
    return Weights(found[depth], 'classification', depth=depth)


def _checkpoint(folder: str) -> str:
    """Returns the folder with the checkpoint of a zoo model or of a model_dir."""
    inner = os.path.join(folder, 'checkpoint')
    return inner if os.path.isdir(inner) else folder
