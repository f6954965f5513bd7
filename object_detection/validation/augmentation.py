"""Rules of the steps that change training examples, and of labels that are stored as scores."""

from collections.abc import Collection, Iterator

from object_detection.builders import training_rules
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.protos.train_pb2 import TrainConfig

# Step -> its field that says which keypoint replaces which.
_KEYPOINT_FLIPS = {
    'random_horizontal_flip': 'keypoint_flip_permutation',
    'random_vertical_flip': 'keypoint_flip_permutation',
    'random_rotation90': 'keypoint_rot_permutation',
}
_FLIPS = ('random_horizontal_flip', 'random_vertical_flip')
# Steps that change every training image in the same way.
_FIXED_CHANGES = ('normalize_image', 'subtract_channel_mean', 'rgb_to_gray', 'adjust_gamma')
# Steps that take and make colours of 0..255 alone.
_BYTE_STEPS = (
    'adjust_gamma',
    'autoaugment_image',
    'gaussian_blur',
    'motion_blur',
    'photometric_distortion',
    'rand_augment',
    'random_adjust_brightness',
    'random_adjust_contrast',
    'random_adjust_hue',
    'random_adjust_saturation',
    'random_affine',
    'random_distort_color',
    'random_jpeg_quality',
    'random_patch_gaussian',
    'random_pixel_value_scale',
)


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields what is wrong with `train_config.data_augmentation_options` and soft labels."""
    config = pipeline.train_config
    for path, step in training_rules.augmentation_steps(config):
        if step.WhichOneof('preprocessing_step') is None:
            yield f'{path} is empty; expected a step.'
        if step.HasField('copy_paste') and not pipeline.train_input_reader.load_instance_masks:
            yield (
                f'{path}.copy_paste: expected train_input_reader.load_instance_masks: true with '
                'it, as it cuts objects out along their masks. Received: false there.'
            )
    yield from training_rules.stop_problems(config, pipeline.train_input_reader)
    yield from _keypoint_flips(pipeline)
    yield from _scores(pipeline)


def warnings(config: TrainConfig) -> Iterator[str]:
    """Yields sentences about colours, and about steps that are meant to stop but never do.

    One for each step that changes all training images, but no other images, one for each step
    of colours of 0..255 that a step comes before after which they are others, and one for each
    step whose `stop_after_step` the training does not pass.
    """
    before = ''
    for path, step in training_rules.augmentation_steps(config):
        kind = step.WhichOneof('preprocessing_step')
        if before and kind in _BYTE_STEPS:
            yield (
                f'{path}.{kind} is made for colours of 0..255, which they are not after {before}; '
                'put it before that.'
            )
        if _leaves_bytes(step):
            before = before or f'{path}.{kind}'
        is_always = step.probability == 1 and 'one_of' not in path
        if kind in _FIXED_CHANGES and is_always:
            yield (
                f'{path}.{kind} changes all training images, but not those of evaluation '
                'and of exported models.'
            )
        if 0 < config.num_steps <= step.stop_after_step:
            yield (
                f'{path}.stop_after_step is {step.stop_after_step}, but train_config.num_steps is '
                f'{config.num_steps}: {kind} never stops.'
            )


def _leaves_bytes(step: PreprocessingStep) -> bool:
    """Whether colours are other than 0..255 after a step."""
    target = step.normalize_image
    is_same_range = (target.target_minval, target.target_maxval) == (0, 255)
    return step.HasField('subtract_channel_mean') or (
        step.HasField('normalize_image') and not is_same_range
    )


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
        kind = step.WhichOneof('preprocessing_step')
        if reader.load_dense_pose and kind in _FLIPS:
            yield (
                f'{path}.{kind}: expected none with train_input_reader.load_dense_pose, as '
                'where a point of a mirrored body lies on its surface is in a table of '
                'measurements that is not part of this package.'
            )
        if not count or kind not in _KEYPOINT_FLIPS:
            continue
        field = _KEYPOINT_FLIPS[kind]
        permutation = list(getattr(getattr(step, kind), field))
        # Rotated keypoints keep their meaning, unless the config says otherwise.
        is_told = kind == 'random_horizontal_flip' and _names_tell(reader)
        if not permutation and (is_told or kind == 'random_rotation90'):
            continue
        if len(permutation) != count:
            yield (
                f'{path}.{kind}.{field}: expected one entry for each of the {count} '
                'keypoints (train_input_reader.num_keypoints), the one that takes its place. '
                f'Received: {permutation}.'
            )


def _names_tell(reader: InputReader) -> bool:
    """Whether the names of keypoints tell which one takes which one's place."""
    try:
        return training_rules.by_names(reader) is not None
    except ValueError:
        # Another rule reports the label map.
        return False


def _scores(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    config = pipeline.train_config
    has_scores = pipeline.train_input_reader.load_multiclass_scores
    yield from training_rules.score_problems(config, pipeline.train_input_reader)
    for path, step in training_rules.augmentation_steps(config):
        if step.HasField('convert_class_logits_to_softmax') and not has_scores:
            yield (
                f'{path}.convert_class_logits_to_softmax: expected '
                f'{training_rules.LOADS_SCORES}: true with it. Received: false there.'
            )
