import tensorflow as tf
from click.testing import CliRunner

from object_detection.cli.checkpoint import command
from object_detection.training import checkpoints


def test_inspect_lists_names_and_shapes(tmp_path):
    kernel = tf.Variable(tf.zeros([2, 3]))
    checkpoints.save_model(str(tmp_path), {'backbone/conv1_conv/kernel': kernel}, 7)
    result = CliRunner().invoke(command, ['inspect', str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        'model/backbone/conv1_conv/kernel [2, 3]',
        'step []',
        f'checkpoint {tmp_path}/ckpt-0: 2 variables, 7 numbers',
    ]
