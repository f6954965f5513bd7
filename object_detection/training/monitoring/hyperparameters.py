"""The hyper-parameters of a training, for TensorBoard's HParams."""

import hashlib
import os

from google.protobuf.message import Message

from object_detection.config import walk
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_PARTS = ('model', 'train_config')
_MAX_TEXT = 200  # characters


def of_training(
    config: TrainEvalPipelineConfig, directory: str | os.PathLike
) -> tuple[dict[str, bool | float | str], str]:
    """Returns the set fields of the model and of the training, and a name of the training.

    Args:
      config: the resolved config.
      directory: the model_dir, or a folder `eval/NAME` of it: all give the same name.
    """
    values = {}
    for part in _PARTS:
        for found in walk.set_fields(getattr(config, part), path=part):
            if found.field.enum_type is not None:
                values[found.path] = found.field.enum_type.values_by_number[found.value].name
            elif not isinstance(found.value, Message | bytes):
                value = found.value
                values[found.path] = value[:_MAX_TEXT] if isinstance(value, str) else value
    folder, _, inner = os.path.abspath(directory).rpartition(f'{os.sep}eval')
    is_reader = folder and inner[:1] in ('', os.sep)
    root = folder if is_reader else os.path.abspath(directory)
    return values, hashlib.sha256(root.encode()).hexdigest()[:16]
