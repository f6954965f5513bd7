"""Rules of the steps that change training examples, and of labels that are stored as scores."""

from collections.abc import Collection, Iterator

from object_detection.builders import training_rules
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.protos.train_pb2 import TrainConfig


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what is wrong with `train_config.data_augmentation_options` and soft labels."""
    config, reader = pipeline.train_config, pipeline.train_input_reader
    for path, step in training_rules.augmentation_steps(config):
        if step.WhichOneof('preprocessing_step') is None:
            yield f'{path} is empty; expected a step.'
        facts = training_rules.step_facts(step)
        if facts.needs and not getattr(reader, facts.needs):
            why = f', {facts.why}' if facts.why else ''
            yield (
                f'{path}.{step.WhichOneof("preprocessing_step")}: expected train_input_reader.'
                f'{facts.needs}: true with it{why}. Received: false there.'
            )
    yield from training_rules.stop_problems(config, reader)
    yield from _keypoint_flips(pipeline)
    yield from training_rules.score_problems(config, reader)


def warnings(config: TrainConfig) -> Iterator[str]:
    """Yields sentences about colours, and about steps that are meant to stop but never do.

    One for each step that changes all training images, but no other images, one for each step
    of colours of 0..255 that a step comes before after which they are others, and one for each
    step whose `stop_after_step` the training does not pass.
    """
    before = ''
    for path, step in training_rules.augmentation_steps(config):
        kind, facts = step.WhichOneof('preprocessing_step'), training_rules.step_facts(step)
        if before and facts.takes_bytes:
            yield (
                f'{path}.{kind} is made for colours of 0..255, which they are not after {before}; '
                'put it before that.'
            )
        if facts.changes_scale and not _makes_bytes(step):
            before = before or f'{path}.{kind}'
        is_always = step.probability == 1 and 'one_of' not in path
        if facts.is_fixed and is_always:
            yield (
                f'{path}.{kind} changes all training images, but not those of evaluation '
                'and of exported models.'
            )
        if 0 < config.num_steps <= step.stop_after_step:
            yield (
                f'{path}.stop_after_step is {step.stop_after_step}, but train_config.num_steps is '
                f'{config.num_steps}: {kind} never stops.'
            )


def _makes_bytes(step: PreprocessingStep) -> bool:
    """Whether a step says that colours are 0..255 after it."""
    config = getattr(step, step.WhichOneof('preprocessing_step'))
    names = ('target_minval', 'target_maxval')
    return [getattr(config, name, None) for name in names] == [0, 255]


def ids_trained_on(ids: Collection[int], config: TrainConfig) -> set[int]:
    """Returns the ids of `ids` after the steps that remap labels or always drop a class."""
    left = set(ids)
    for step in config.data_augmentation_options:
        if step.HasField('remap_labels'):
            originals = left.intersection(step.remap_labels.original_labels)
            if originals:
                left = (left - originals) | {step.remap_labels.new_label}
        drop = step.drop_label_probabilistically
        if step.HasField('drop_label_probabilistically') and drop.drop_probability == 1:
            left.discard(drop.label)
    return left


def _keypoint_flips(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    reader = pipeline.train_input_reader
    count = reader.num_keypoints
    for path, step in training_rules.augmentation_steps(pipeline.train_config):
        kind, facts = step.WhichOneof('preprocessing_step'), training_rules.step_facts(step)
        if reader.load_dense_pose and facts.mirrors:
            yield (
                f'{path}.{kind}: expected none with train_input_reader.load_dense_pose, as '
                'where a point of a mirrored body lies on its surface is in a table of '
                'measurements that is not part of this package.'
            )
        field = facts.permutation
        if not count or not field:
            continue
        permutation = list(getattr(getattr(step, kind), field))
        # Rotated keypoints keep their meaning, unless the config says otherwise.
        is_known = not facts.mirrors or (facts.exchanges_sides and _is_known_by_names(reader))
        if not permutation and is_known:
            continue
        if len(permutation) != count:
            yield (
                f'{path}.{kind}.{field}: expected one entry for each of the {count} '
                'keypoints (train_input_reader.num_keypoints), the one that takes its place. '
                f'Received: {permutation}.'
            )


def _is_known_by_names(reader: InputReader) -> bool:
    """Whether the names of keypoints say which one takes which one's place."""
    try:
        return training_rules.by_names(reader) is not None
    except ValueError:
        # Another rule reports the label map.
        return False
