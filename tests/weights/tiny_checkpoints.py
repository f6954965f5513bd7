"""Checkpoints of a few variables."""

import tensorflow as tf

from object_detection.training.checkpoints import manager
from object_detection.weights import checkpoints
from tests.training.fake_detectors import VariablesDetector


def make_variables(value=1.0, shape=(2, 3)):
    return {
        'backbone/conv1/kernel': tf.Variable(tf.fill(shape, value)),
        'head/bias': tf.Variable([value]),
        'head/seed': tf.Variable([3, 4]),
    }


def make_checkpoints(directory, model, step=0, **options):
    slots = {name: tf.Variable(tf.zeros_like(v)) for name, v in model.items() if 'seed' not in name}
    return manager.Checkpoints(
        str(directory),
        model=model,
        optimizer={'momentum': slots},
        step=tf.Variable(step, dtype=tf.int64),
        **options,
    )


def names_in(directory):
    """The names of all entries of a folder, sorted."""
    return sorted(path.name for path in directory.iterdir())


def files_of(*numbers):
    """The names of the files of checkpoints, and of the state file."""
    endings = ('data-00000-of-00001', 'index')
    return ['checkpoint', *(f'ckpt-{n}.{end}' for n in numbers for end in endings)]


def state_of(directory):
    """What the state file names, in its order, by number."""
    state = tf.train.get_checkpoint_state(str(directory))
    return [int(prefix.rpartition('-')[2]) for prefix in state.all_model_checkpoint_paths]


def weights(value=0.0, *, num_classes=4, mask_depth=8, blocks=2, masks=True):
    """The variables of a small detector alone, filled with one number."""
    shapes = {
        'backbone/conv1_conv/kernel': (7, 7, 3, 4),
        **{f'backbone/conv2_block{i}_2_conv/kernel': (3, 4) for i in range(1, blocks + 1)},
        'fpn/top/kernel': (4, 4),
        'box_classifier/dense_1/kernel': (4, 4),
        'rpn/conv/kernel': (4, 4),
        'box_head/classes/kernel': (4, num_classes + 1),
        'box_head/classes/bias': (num_classes + 1,),
        'box_head/box_codes/kernel': (4, 4 * num_classes),
        'box_head/box_codes/bias': (4 * num_classes,),
    }
    if masks:
        shapes |= {
            'mask_head/conv_1/kernel': (3, 3, 4, mask_depth),
            'mask_head/masks/kernel': (3, 3, mask_depth, num_classes),
            'mask_head/masks/bias': (num_classes,),
        }
    return VariablesDetector(shapes, num_classes=num_classes, value=value)


def save(folder, detector) -> str:
    """Saves the variables of a detector, and returns the checkpoint's prefix."""
    return checkpoints.save_model(str(folder), detector.named_variables(), 5)
