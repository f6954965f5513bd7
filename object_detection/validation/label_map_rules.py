"""Rules that compare label maps: the same ids must mean the same classes."""

from collections.abc import Iterator

from object_detection.data import label_map
from object_detection.data.label_map import LabelMap
from object_detection.errors import format_list
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

# Maximum number of ids in a message.
_MAX_IDS = 3


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a sentence for each eval reader whose classes have other ids than in training."""
    for path, differing in _differing(pipeline, are_swapped=True):
        yield (
            f'{path}: expected the ids of train_input_reader.label_map_path, which the model '
            f'is trained with. Received: {differing}.'
        )


def warnings(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields a sentence for each eval reader with other names for the ids of the training."""
    for path, differing in _differing(pipeline, are_swapped=False):
        yield f'{path} has other names than train_input_reader.label_map_path: {differing}.'


def describe(differing: list[tuple[int, str, str]]) -> str:
    """Returns e.g. "id 1 is 'cube' there and 'cone' here, and 4 more"."""
    texts = (
        f'id {number} is {there!r} there and {here!r} here' for number, there, here in differing
    )
    return format_list(texts, _MAX_IDS)


def _differing(
    pipeline: TrainEvalPipelineConfig, *, are_swapped: bool
) -> Iterator[tuple[str, str]]:
    """Yields the path of each label map that differs from that of the training, and how."""
    trained = _load(pipeline.train_input_reader.label_map_path)
    if trained is None:
        return
    for index, reader in enumerate(pipeline.eval_input_reader):
        if reader.label_map_path == pipeline.train_input_reader.label_map_path:
            continue
        evaluated = _load(reader.label_map_path)
        differing = evaluated and label_map.differing_ids(trained, evaluated)
        if differing and label_map.are_swapped(trained, evaluated) == are_swapped:
            yield f'eval_input_reader[{index}].label_map_path', describe(differing)


def _load(path: str) -> LabelMap | None:
    """Returns None if unreadable: another rule reports it, or an eval job lacks that file."""
    try:
        return label_map.load(path) if path else None
    except ValueError:
        return None
