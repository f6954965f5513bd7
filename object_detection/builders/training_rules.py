"""Rules of `train_config` for variables, layers and classes; they need no TensorFlow.

Builders raise the problems as errors, and the validation lists them.

The keypoints that take each other's place in mirrored images, by the label map.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from object_detection.config import ranges, walk
from object_detection.config.oneof import find_facts
from object_detection.data import label_map
from object_detection.errors import format_list, raise_if_any
from object_detection.protos import options_pb2
from object_detection.protos.graph_rewriter_pb2 import Quantization
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.optimizer_pb2 import LearningRateMultiplier
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.protos.train_pb2 import ClassWeight, TrainConfig, WeightDecay

MULTIPLIER = 'train_config.optimizer.learning_rate_multiplier'
QUANTIZATION = 'graph_rewriter.quantization'
EXEMPTIONS = 'train_config.precision_exempt_patterns'
LOADS_SCORES = 'train_input_reader.load_multiclass_scores'
_CLASS_WEIGHT = 'train_config.class_weight'
_LABEL_MAP = 'train_input_reader.label_map_path'
_MAX_NAMES = 12


def augmentation_steps(config: TrainConfig) -> list[tuple[str, PreprocessingStep]]:
    """Returns the path and the message of each augmentation step, those inside of others, too."""
    return [
        (found.path, found.value)
        for found in walk.set_fields(config, path='train_config')
        if isinstance(found.value, PreprocessingStep)
    ]


def step_facts(step: PreprocessingStep) -> options_pb2.StepFacts:
    """Returns what the schema says about a step; nothing about an empty one or a plug-in's."""
    return find_facts(step, 'preprocessing_step', options_pb2.step)


def stop_problems(config: TrainConfig, reader: InputReader) -> Iterator[str]:
    """Yields the problems of `stop_after_step` of augmentation steps."""
    for path, step in augmentation_steps(config):
        place = f'{path}.stop_after_step'
        if not step.stop_after_step:
            continue
        if 'one_of' in path:
            yield f'{place}: expected it in the step with one_of. Received: in one of its steps.'
        if reader.data_service:
            yield (
                f'{place}: expected none with train_input_reader.data_service, whose examples '
                f'belong to no training step. Received: {step.stop_after_step}.'
            )


def pattern_problems(field: str, patterns: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each element of the list `field` that is no regular expression."""
    for index, pattern in enumerate(patterns):
        yield from _pattern(f'{field}[{index}]', pattern)


def multiplier_problems(entries: Iterable[LearningRateMultiplier]) -> Iterator[str]:
    """Yields the problems of learning rate multipliers that no model could remedy."""
    for index, entry in enumerate(entries):
        path = f'{MULTIPLIER}[{index}]'
        if not entry.variables:
            yield f'{path}.variables is not set; expected a regular expression.'
        yield from _pattern(f'{path}.variables', entry.variables)
        if not entry.HasField('multiplier'):
            yield f'{path}.multiplier is not set; expected a factor of the learning rate.'
        yield from ranges.find(entry, path=path).errors


def weight_decay_problems(decay: WeightDecay) -> Iterator[str]:
    """Yields the problems of `weight_decay` that no model could remedy."""
    path = 'train_config.weight_decay'
    if not decay.HasField('weight'):
        yield f'{path}.weight is not set; expected e.g. 0.0001.'
    yield from ranges.find(decay, path=path).errors
    yield from _pattern(f'{path}.exclude_pattern', decay.exclude_pattern)


def exemption_problems(patterns: Collection[str], *, uses_tf32: bool) -> Iterator[str]:
    """Yields the problems of `precision_exempt_patterns` that no model could remedy."""
    yield from pattern_problems(EXEMPTIONS, patterns)
    if uses_tf32 and patterns:
        yield (
            f'{EXEMPTIONS}: expected precision: MIXED_BFLOAT16 or '
            'MIXED_FLOAT16 with it, as GPUs take TF32 for all layers or none. Received: TF32.'
        )


def quantization_problems(config: Quantization, precision: str) -> Iterator[str]:
    """Yields the problems of `graph_rewriter.quantization` that no model could remedy.

    Args:
      config: the message.
      precision: a key of `precision.POLICIES`.
    """
    yield from ranges.find(config, path=QUANTIZATION).errors
    if precision.startswith('mixed_'):
        yield (
            f'{QUANTIZATION}: expected precision float32 or tf32 with it, as 16 bits do not hold '
            f'the rounded values. Received: {precision}.'
        )


def _pattern(field: str, pattern: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f'{field}: expected a regular expression. Received: {pattern!r} ({error}).'


def score_problems(config: TrainConfig, reader: InputReader) -> Iterator[str]:
    """Yields what keeps stored scores from being the targets of a training."""
    if config.use_multiclass_scores and not reader.load_multiclass_scores:
        yield (
            f'train_config.use_multiclass_scores: expected {LOADS_SCORES}: true with it. '
            'Received: false there.'
        )
    if config.use_multiclass_scores and config.merge_multiple_label_boxes:
        yield (
            'train_config.use_multiclass_scores, train_config.merge_multiple_label_boxes: '
            'expected one of them. Received: both.'
        )


def class_weights(
    entries: Sequence[ClassWeight], label_map_path: str, num_classes: int
) -> tuple[float, ...]:
    """Returns the weight of each of the K classes, 1 where none is set; () if no class has one.

    Args:
      entries: `train_config.class_weight`.
      label_map_path: label map of the training data; may be empty if the entries have ids.
      num_classes: K.

    Raises:
      ConfigError: if entries are wrong; the message names each of them.
      ValueError: if the label map cannot be read.
    """
    if not entries:
        return ()
    raise_if_any(class_weight_problems(entries, label_map_path, num_classes))
    ids = _ids(entries, label_map_path)
    weights = [1.0] * num_classes
    for entry in entries:
        weights[_id(entry, ids) - 1] = entry.weight
    return tuple(weights)


def class_weight_problems(
    entries: Sequence[ClassWeight], label_map_path: str, num_classes: int
) -> Iterator[str]:
    """Yields what is wrong with the entries, if the label map can be read; see `class_weights`."""
    try:
        ids = _ids(entries, label_map_path)
    except ValueError:  # Another rule reports it.
        return
    first: dict[int, int] = {}
    for index, entry in enumerate(entries):
        path = f'{_CLASS_WEIGHT}[{index}]'
        if not entry.HasField('weight'):
            yield f'{path}.weight is not set; expected 0 or more.'
        yield from ranges.find(entry, path=path).errors
        problem = _label_problem(entry, path, ids, num_classes)
        if problem:
            yield problem
        elif first.setdefault(_id(entry, ids), index) != index:
            yield (
                f'{path}: expected one entry a class. Received: another one for the class of '
                f'{_CLASS_WEIGHT}[{first[_id(entry, ids)]}].'
            )
    if len(first) == num_classes > 0 and not any(entry.weight for entry in entries):
        yield (
            f'{_CLASS_WEIGHT}: expected a class with a weight above 0. Received: 0 for every class.'
        )


def _label_problem(
    entry: ClassWeight, path: str, ids: Mapping[str, int] | None, num_classes: int
) -> str | None:
    """Returns what is wrong with the name or id of an entry."""
    label = entry.WhichOneof('label')
    if label is None:
        return f'{path}: expected a name or an id of a class. Received: neither.'
    if label == 'name' and ids is None:
        return f'{path}.name: expected {_LABEL_MAP} with it, or an id. Received: {entry.name!r}.'
    if label == 'name' and entry.name not in ids:
        nearest = difflib.get_close_matches(entry.name, ids, n=1)
        meant = f', did you mean {nearest[0]!r}?' if nearest else '.'
        return (
            f'{path}.name: expected a class of {_LABEL_MAP}, such as '
            f'{format_list(ids, _MAX_NAMES)}. Received: {entry.name!r}{meant}'
        )
    if not 1 <= _id(entry, ids) <= num_classes:
        which = '' if label == 'id' else f'{entry.name!r}, '
        return (
            f'{path}.{label}: expected a class with an id of 1 to {num_classes} (num_classes). '
            f'Received: {which}{_id(entry, ids)}.'
        )
    return None


def _id(entry: ClassWeight, ids: Mapping[str, int] | None) -> int:
    return ids[entry.name] if entry.HasField('name') else entry.id


def _ids(entries: Sequence[ClassWeight], label_map_path: str) -> dict[str, int] | None:
    """Returns names and display names -> ids; None if no label map is given or needed."""
    if label_map_path and any(entry.HasField('name') for entry in entries):
        return label_map.load(label_map_path).text_to_id
    return None


def by_names(reader: InputReader) -> tuple[int, ...] | None:
    """Returns the permutation that follows from a reader's label map; None if none does."""
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
    facts = step_facts(copy)
    if facts.exchanges_sides:
        config = getattr(copy, copy.WhichOneof('preprocessing_step'))
        if not getattr(config, facts.permutation):
            getattr(config, facts.permutation).extend(permutation)
    for each in copy.one_of.steps if copy.HasField('one_of') else ():
        each.CopyFrom(_completed(each, permutation))
    return copy
