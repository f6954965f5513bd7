"""Rules of the checkpoint that a training starts from; TensorFlow is not loaded."""

import os
from collections.abc import Iterator

from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.weights.interfaces import check_type

WEIGHTS_SUFFIXES = ('.h5', '.hdf5', '.npz')

_ROOT = 'train_config'


def resolve_type(checkpoint_type: str, from_detection_checkpoint: bool) -> str:
    """Returns which weights are restored, also for an empty `checkpoint_type`."""
    return checkpoint_type or ('detection' if from_detection_checkpoint else 'classification')


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields one sentence per problem of the fields about fine-tuning."""
    config = pipeline.train_config
    if config.fine_tune_checkpoint_type:
        yield from check_type(config.fine_tune_checkpoint_type)
    path = config.fine_tune_checkpoint
    if not path:
        return
    chosen = resolve_type(config.fine_tune_checkpoint_type, config.from_detection_checkpoint)
    if config.load_all_detection_checkpoint_vars and chosen == 'classification':
        yield (
            f'{_ROOT}.load_all_detection_checkpoint_vars takes whatever fits from the checkpoint '
            f"of a detector; expected {_ROOT}.fine_tune_checkpoint_type: 'detection' or 'full'. "
            "Received: 'classification'"
            + ('.' if config.fine_tune_checkpoint_type else ' (unset).')
        )
    if path.endswith(WEIGHTS_SUFFIXES) and chosen != 'classification':
        yield (
            f'{_ROOT}.fine_tune_checkpoint_type: the weights file {path!r} holds a backbone '
            f"alone; expected 'classification'. Received: {chosen!r}."
        )
    if not _exists(path):
        yield (
            f'{_ROOT}.fine_tune_checkpoint: expected the prefix of a checkpoint, such as '
            'DIR/ckpt-3, a folder of checkpoints, a Keras weights file or a NumPy archive. '
            f'Received: {path!r}, where there is none; leave it empty to train from scratch, or '
            'to go on in a model_dir.'
        )


def _exists(path: str) -> bool:
    if files.exists(f'{path}.index'):
        return True
    return files.exists(os.path.join(path, 'checkpoint') if os.path.isdir(path) else path)
