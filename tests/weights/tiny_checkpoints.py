"""Checkpoints of a few variables."""

import tensorflow as tf

from object_detection.training.checkpoints import manager


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
