"""The keypoints that take each other's place in mirrored images, by the label map."""

from collections.abc import Iterable, Iterator

from object_detection.data import label_map
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.preprocessor_pb2 import PreprocessingStep


def by_names(reader: InputReader) -> tuple[int, ...] | None:
    """Returns the permutation that the names in a reader's label map tell; None if they do not."""
    if not reader.num_keypoints or not reader.label_map_path:
        return None
    labels = label_map.load(reader.label_map_path)
    return label_map.mirrored_keypoints(labels, reader.num_keypoints)


def completed(
    steps: Iterable[PreprocessingStep], reader: InputReader
) -> Iterator[PreprocessingStep]:
    """Yields the steps; horizontal flips without a permutation have that of `by_names`."""
    permutation = by_names(reader)
    for step in steps:
        if permutation is not None:
            step = _completed(step, permutation)
        yield step


def _completed(step: PreprocessingStep, permutation: tuple[int, ...]) -> PreprocessingStep:
    copy = PreprocessingStep()
    copy.CopyFrom(step)
    flip = copy.random_horizontal_flip
    if copy.HasField('random_horizontal_flip') and not flip.keypoint_flip_permutation:
        flip.keypoint_flip_permutation.extend(permutation)
    for each in copy.one_of.steps if copy.HasField('one_of') else ():
        each.CopyFrom(_completed(each, permutation))
    return copy
