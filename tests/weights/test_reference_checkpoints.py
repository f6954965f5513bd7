"""Starting from checkpoints of the TensorFlow Object Detection API."""

import logging

import pytest
import tensorflow as tf

from object_detection.errors import CheckpointError
from object_detection.weights import checkpoint_contents, restore
from object_detection.weights.checkpoint_files import VALUE_SUFFIX
from tests.training.fake_detectors import VariablesDetector

PROPOSALS = 'model/_feature_extractor_for_proposal_features'
CROPS = 'model/_feature_extractor_for_box_classifier_features'
RPN = 'model/_first_stage_box_predictor/_prediction_heads'
HEADS = 'model/_mask_rcnn_box_predictor'
CLASSES = f'{HEADS}/_class_prediction_head/_class_predictor_layers'
CODES = f'{HEADS}/_box_prediction_head/_box_encoder_layers'
MASKS = f'{HEADS}/_third_stage_heads/mask_predictions/_mask_predictor_layers'

BACKBONE = [
    ('backbone/conv1_conv/kernel', (7, 7, 3, 4)),
    ('backbone/conv1_bn/gamma', (4,)),
    ('backbone/conv1_bn/moving_mean', (4,)),
    ('backbone/conv4_block1_1_conv/kernel', (1, 1, 4, 4)),
]
STAGE_5 = [
    ('box_classifier/conv5_block1_1_conv/kernel', (1, 1, 4, 8)),
    ('box_classifier/conv5_block1_1_bn/gamma', (8,)),
]
# By our names: where the reference keeps them, and their shapes.
KEYS = {
    'rpn/conv/kernel': 'model/_first_stage_box_predictor_first_conv/layer_with_weights-0/kernel',
    'rpn/conv_bn/beta': 'model/_first_stage_box_predictor_first_conv/layer_with_weights-1/beta',
    'rpn/box_codes_0/kernel': f'{RPN}/box_encodings/0/_box_encoder_layers/0/kernel',
    'rpn/objectness_0/kernel': (
        f'{RPN}/class_predictions_with_background/0/_class_predictor_layers/0/kernel'
    ),
    'box_head/box_codes/kernel': f'{CODES}/1/kernel',
    'box_head/classes/kernel': f'{CLASSES}/1/kernel',
    'box_head/classes/bias': f'{CLASSES}/1/bias',
    'mask_head/conv_1/kernel': f'{MASKS}/0/kernel',
    'mask_head/conv_1_bn/beta': f'{MASKS}/1/beta',
    'mask_head/conv_2/kernel': f'{MASKS}/3/kernel',
    'mask_head/conv_2_bn/beta': f'{MASKS}/4/beta',
    'mask_head/masks/bias': f'{MASKS}/6/bias',
}


def shapes(num_classes):
    return {
        'rpn/conv/kernel': (3, 3, 4, 8),
        'rpn/conv_bn/beta': (8,),
        'rpn/box_codes_0/kernel': (1, 1, 8, 12),
        'rpn/objectness_0/kernel': (1, 1, 8, 6),
        'box_head/box_codes/kernel': (8, 4 * num_classes),
        'box_head/classes/kernel': (8, num_classes + 1),
        'box_head/classes/bias': (num_classes + 1,),
        'mask_head/conv_1/kernel': (3, 3, 8, 4),
        'mask_head/conv_1_bn/beta': (4,),
        'mask_head/conv_2/kernel': (3, 3, 4, 4),
        'mask_head/conv_2_bn/beta': (4,),
        'mask_head/masks/bias': (num_classes,),
    }


def detector(num_classes=4):
    """A few variables of a detector whose last stage runs on crops, all 0."""
    names = dict(BACKBONE + STAGE_5) | shapes(num_classes)
    return VariablesDetector(names, num_classes=num_classes)


def counted(rows, path, first=0):
    """Names the variables of a backbone by the positions of their layers."""
    layers = list(dict.fromkeys(name.rpartition('/')[0] for name, _ in rows))
    keys = {}
    for name, shape in rows:
        layer, _, variable = name.rpartition('/')
        keys[f'{path}/layer_with_weights-{first + layers.index(layer)}/{variable}'] = shape
    return keys


def reference(num_classes=4):
    """Key, without its end -> shape, of the detector's checkpoint in the reference."""
    backbone = counted(BACKBONE, PROPOSALS) | counted(STAGE_5, CROPS)
    return backbone | {KEYS[name]: shape for name, shape in shapes(num_classes).items()}


def write(folder, keys):
    """Writes a checkpoint, in which the i-th key has the value i + 1."""
    prefix = str(folder / 'ckpt-0')
    names = [key + VALUE_SUFFIX for key in [*keys, 'save_counter']]
    tensors = [tf.fill(shape, i + 1.0) for i, shape in enumerate(keys.values())]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[''] * len(names),
        tensors=[*tensors, tf.constant(1, tf.int64)],
    )
    return prefix


def expected(keys):
    return {key: i + 1.0 for i, key in enumerate(keys)}


def test_everything_is_taken_and_nothing_is_left(tmp_path):
    keys = reference()
    target = detector()
    report = restore.restore(target, write(tmp_path, keys), 'full')
    values = expected(keys)
    backbone = [name for name, _ in BACKBONE + STAGE_5]
    ours = dict(zip(backbone, list(values.values())[: len(backbone)], strict=True))
    assert target.values() == ours | {name: values[key] for name, key in KEYS.items()}
    assert report.restored == sorted(target.variables)
    assert report.missing == report.unused == report.mismatched == []


def test_layers_without_variables_shift_positions(tmp_path):
    """With dropout the dense layer is the third one of its list."""
    keys = {key.replace('_layers/1/', '_layers/2/'): shape for key, shape in reference().items()}
    keys[f'{MASKS}/1/beta'] = keys.pop(f'{MASKS}/2/beta')
    report = restore.restore(detector(), write(tmp_path, keys))
    assert report.missing == report.unused == []


def test_the_extractor_alone(tmp_path):
    report = restore.restore(detector(), write(tmp_path, reference()), 'detection')
    assert report.restored == sorted(name for name, _ in BACKBONE + STAGE_5)
    assert report.unused == sorted(key + VALUE_SUFFIX for key in KEYS.values())
    assert set(report.missing) == KEYS.keys()


@pytest.mark.parametrize(
    'path',
    [
        'feature_extractor',
        f'{PROPOSALS}/classification_backbone',
        'model/_feature_extractor/classification_backbone',
    ],
)
def test_a_backbone_in_one_piece(tmp_path, path):
    """Of an image classifier, under a pyramid, and of SSD; the first has a top."""
    keys = counted(BACKBONE + STAGE_5, path)
    top = f'{path}/layer_with_weights-9/kernel'
    prefix = write(tmp_path, keys | {top: (8, 1000)})
    target = detector()
    report = restore.restore(target, prefix, 'classification')
    assert report.restored == sorted(name for name, _ in BACKBONE + STAGE_5)
    assert report.unused == [top + VALUE_SUFFIX]
    assert target.values()['box_classifier/conv5_block1_1_conv/kernel'] == 5.0


def test_a_classifier_serves_one_type(tmp_path):
    prefix = write(tmp_path, counted(BACKBONE + STAGE_5, 'feature_extractor'))
    with pytest.raises(CheckpointError, match='holds a backbone alone'):
        restore.restore(detector(), prefix, 'detection')


def test_another_number_of_classes_starts_the_heads_anew(tmp_path, caplog):
    prefix = write(tmp_path, reference(num_classes=90))
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(detector(), prefix)
    heads = ['box_head/box_codes/kernel', 'box_head/classes/bias', 'box_head/classes/kernel']
    assert report.mismatched == [*heads, 'mask_head/masks/bias']
    assert report.unused == sorted(KEYS[name] + VALUE_SUFFIX for name in report.mismatched)
    assert 'num_classes is 4, and 90 there; initialised: box_head, mask_head/masks' in caplog.text


def test_state_of_the_optimizer_is_no_weight_and_averages_are_left(tmp_path, caplog):
    keys = reference()
    slot = f'{CLASSES}/1/bias/.OPTIMIZER_SLOT/optimizer/'
    state = {f'{slot}{name}': (5,) for name in ('momentum', 'average')}
    prefix = write(tmp_path, keys | state | {'optimizer/iter': (), 'step': ()})
    target = detector()
    with caplog.at_level(logging.INFO, 'object_detection'):
        report = restore.restore(target, prefix)
    assert report.unused == []
    assert target.values()['box_head/classes/bias'] == expected(keys)[f'{CLASSES}/1/bias']
    assert 'without its moving averages' in caplog.text


def assert_refused(prefix, *texts, checkpoint_type='full'):
    target = detector()
    with pytest.raises(CheckpointError) as caught:
        restore.restore(target, prefix, checkpoint_type)
    for text in (prefix, *texts):
        assert text in str(caught.value)
    assert set(target.values().values()) == {0.0}


def test_another_shape_is_reported_with_its_key(tmp_path):
    keys = reference()
    key = KEYS['rpn/conv/kernel']
    keys[key] = (3, 3, 4, 16)
    assert_refused(
        write(tmp_path, keys),
        f'rpn/conv/kernel ({key}{VALUE_SUFFIX}: [3, 3, 4, 16] there, [3, 3, 4, 8] in the model)',
        "fine_tune_checkpoint_type: 'detection'",
    )


@pytest.mark.parametrize(
    ('key', 'name'),
    [
        (f'{PROPOSALS}/layer_with_weights-0/bias', 'backbone/conv1_conv/bias'),
        (f'{CLASSES}/2/gamma', 'box_head/classes_bn/gamma'),
    ],
)
def test_what_only_the_checkpoint_computes_with_is_not_dropped(tmp_path, key, name):
    prefix = write(tmp_path, reference() | {key: (4,)})
    assert_refused(prefix, f'only in it: {name} ({key}{VALUE_SUFFIX}: [4])')


def test_parts_that_it_lacks(tmp_path):
    keys = {key: shape for key, shape in reference().items() if not key.startswith(MASKS)}
    assert_refused(write(tmp_path, keys), 'not in it: mask_head/conv_1/kernel')


def test_another_backbone(tmp_path):
    """ResNet-50 has 53 convolutions; so few layers as the detector has are no known network."""
    path = 'feature_extractor/layer_with_weights-{}/kernel'
    resnet = {path.format(2 * i): (1, 1, 4, 4) for i in range(53)}
    assert_refused(write(tmp_path, resnet), 'Received: ResNet-50', checkpoint_type='classification')
    few = {path.format(0): (7, 7, 3, 4)}
    (tmp_path / 'few').mkdir()
    assert_refused(
        write(tmp_path / 'few', few),
        'of 5 layers with variables. Received: 1 of a backbone',
        checkpoint_type='classification',
    )


def test_training_cannot_resume_from_it(tmp_path):
    prefix = write(tmp_path, reference())
    with pytest.raises(CheckpointError, match='TensorFlow Object Detection API'):
        checkpoint_contents.check_is_ours(prefix)
