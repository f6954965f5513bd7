import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.cli.checkpoint import command
from object_detection.config.reader import read_pipeline
from object_detection.errors import CheckpointError
from object_detection.export import exporter
from object_detection.system import disk
from object_detection.training.checkpoints import manager
from object_detection.validation import validate
from object_detection.weights import checkpoints, restore
from tests import rows
from tests.tiny_models import tiny_detector, tiny_pipeline
from tests.training.fake_detectors import VariablesDetector
from tests.weights import third_party_files


def run(*arguments, fails=False):
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=fails)
    assert (result.exit_code != 0) == fails, result.output
    return result.exception if fails else result.output


@pytest.fixture
def trained(tmp_path):
    """A folder with a checkpoint of ours of a model and its optimizer."""
    name = 'backbone/conv1_conv/kernel'
    manager.Checkpoints(
        str(tmp_path),
        model={name: tf.Variable(tf.zeros([2, 3]))},
        optimizer={'momentum': {name: tf.Variable(tf.zeros([2, 3]))}},
        step=tf.Variable(7, dtype=tf.int64),
    ).save()
    return tmp_path


def test_inspect_lists_weights_and_other_state_separately(trained):
    assert run('inspect', trained).splitlines() == [
        'model/backbone/conv1_conv/kernel  [2, 3]  float32  6',
        '',
        'other variables:',
        'optimizer/momentum/backbone/conv1_conv/kernel  [2, 3]  float32  6',
        'step                                           []      int64    1',
        '',
        f'checkpoint {trained}/ckpt-1',
        'fine_tune_checkpoint_type: classification, detection, full',
        'weights: 1 variable, 6 parameters',
        'others: 2 variables, 7 numbers',
    ]


def test_inspect_as_json_of_what_matches(trained):
    content = json.loads(run('inspect', trained, '--match', '^model/|step', '--json'))
    assert content['fine_tune_checkpoint_types'] == ['classification', 'detection', 'full']
    assert content['parameters'] == 6
    assert [v['name'] for v in content['variables']] == ['model/backbone/conv1_conv/kernel', 'step']
    assert content['variables'][0] == {
        'name': 'model/backbone/conv1_conv/kernel',
        'shape': [2, 3],
        'dtype': 'float32',
        'parameters': 6,
        'is_weight': True,
    }


def test_inspect_without_a_match_and_with_a_broken_pattern(trained):
    lines = run('inspect', trained, '--match', 'absent').splitlines()
    assert len(lines) == 6
    assert lines[3:] == [
        'weights: 1 variable, 6 parameters',
        'others: 2 variables, 7 numbers',
        'listed of all: 0 variables, 0 numbers',
    ]
    result = CliRunner().invoke(command, ['inspect', str(trained), '--match', '('])
    assert 'expected a regular expression' in result.output


@rows.parametrize('single_file', [False, True])
def test_inspect_a_name_based_checkpoint(tmp_path, single_file):
    arrays = {
        'resnet_v1_50/conv1/weights': np.zeros([7, 7, 3, 64], np.float32),
        'resnet_v1_50/conv1/weights/Momentum': np.zeros([7, 7, 3, 64], np.float32),
        'global_step': np.array(3, np.int64),
    }
    path = tmp_path / 'resnet_v1_50.ckpt'
    third_party_files.write_checkpoint(path, arrays, single_file=single_file)
    lines = run('inspect', path).splitlines()
    assert lines[0] == 'resnet_v1_50/conv1/weights  [7, 7, 3, 64]  float32  9,408'
    assert lines[-4:] == [
        f'TF-Slim ResNet v1 {path}',
        'fine_tune_checkpoint_type: classification',
        'weights: 1 variable, 9,408 parameters',
        'others: 2 variables, 9,409 numbers',
    ]


def test_inspect_an_archive_and_files_of_unknown_names(tmp_path):
    archive = tmp_path / 'R50.npz'
    third_party_files.write_npz(archive, {'conv0/W': np.zeros([7, 7, 3, 64], np.float16)})
    lines = run('inspect', archive).splitlines()
    assert lines[0] == 'conv0/W  [7, 7, 3, 64]  float16  9,408'
    assert lines[2:4] == [
        f'tensorpack ResNet {archive}',
        'fine_tune_checkpoint_type: classification',
    ]
    third_party_files.write_npz(archive, {'other': np.zeros([2], np.float32)})
    third_party_files.write_checkpoint(
        tmp_path / 'model.ckpt', {'other': np.zeros([2], np.float32)}
    )
    for path in (archive, tmp_path / 'model.ckpt'):
        lines = run('inspect', path).splitlines()
        assert lines[0] == 'other  [2]  float32  2'
        assert 'Received: other.' in lines[2]
        assert lines[3] == 'fine_tune_checkpoint_type: none'


def test_inspect_a_detector_of_the_reference(tmp_path):
    kernel = 'model/_feature_extractor/classification_backbone/layer_with_weights-0/kernel'
    suffix = '/.ATTRIBUTES/VARIABLE_VALUE'
    arrays = {
        f'{kernel}{suffix}': np.zeros([7, 7, 3, 64], np.float32),
        f'{kernel}/.OPTIMIZER_SLOT/optimizer/momentum{suffix}': np.zeros([2], np.float32),
        f'optimizer/iter{suffix}': np.array(3, np.int64),
        f'step{suffix}': np.array(3, np.int64),
    }
    path = third_party_files.write_checkpoint(tmp_path / 'ckpt-0', arrays)
    lines = run('inspect', path).splitlines()
    assert lines[0] == f'{kernel}{suffix}  [7, 7, 3, 64]  float32  9,408'
    assert 'TensorFlow Object Detection API' in lines[-4]
    assert lines[-2:] == [
        'weights: 1 variable, 9,408 parameters',
        'others: 3 variables, 4 numbers',
    ]


def test_inspect_refuses_corrupt_and_other_files(trained):
    notes = trained / 'notes.txt'
    notes.write_text('weights are elsewhere')
    index = trained / 'ckpt-1.index'
    index.write_bytes(index.read_bytes()[:50])
    for path, text in ((notes, 'another kind'), (trained, 'damaged'), ('absent', 'no checkpoint')):
        error = run('inspect', path, fails=True)
        assert isinstance(error, CheckpointError)
        assert text in str(error)


def weights(value=0.0, num_classes=4):
    """The variables of a small detector alone, filled with one number."""
    shapes = {
        'backbone/conv1_conv/kernel': [7, 7, 3, 4],
        'box_head/classes/kernel': [4, num_classes + 1],
        'box_head/classes/bias': [num_classes + 1],
    }
    return VariablesDetector(shapes, num_classes=num_classes, value=value)


def save(folder, detector):
    return checkpoints.save_model(str(folder), detector.named_variables(), 5)


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Runs the command into tmp_path/'out' for a detector; returns what it prints, by line."""
    config = tmp_path / 'pipeline.config'
    config.write_text(text_format.MessageToString(tiny_pipeline()))

    def call(path, *arguments, detector=None, **options):
        if detector is not None:
            monkeypatch.setattr(validate, 'validate', lambda pipeline, for_what: None)
            monkeypatch.setattr(model_builder, 'build', lambda model, is_training: detector)
        required = ('--pipeline_config_path', config, '--output', tmp_path / 'out')
        said = run('convert', path, *required, *arguments, **options)
        return said if options else said.splitlines()

    return call


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


CONVERTED = ['checkpoint', 'ckpt-0.data-00000-of-00001', 'ckpt-0.index', 'pipeline.config']


def test_convert_gives_what_evaluation_export_and_training_take(tmp_path, convert):
    source, output = tiny_detector(seed=1), tmp_path / 'out'
    prefix = save(tmp_path / 'source', source)
    assert convert(prefix) == [
        f"checkpoint {prefix}, as 'full':",
        f'  restored: {len(source.named_variables())}',
        f'written: {output}/ckpt-0',
    ]
    assert files_in(output) == CONVERTED
    assert json.loads(''.join(convert(prefix, '--json')))['prefix'] == f'{output}/ckpt-0'
    loaded = exporter.load_detector(read_pipeline(str(output / 'pipeline.config')), str(output))
    for name, variable in loaded.named_variables().items():
        np.testing.assert_array_equal(variable, source.named_variables()[name], err_msg=name)
    report = restore.restore(loaded, str(output))
    assert report.missing == report.unused == report.mismatched == []


def test_convert_to_other_classes_says_what_starts_anew_and_replaces_the_last(tmp_path, convert):
    prefix, output = save(tmp_path / 'source', weights(1.0)), tmp_path / 'out'
    convert(prefix, detector=weights())
    (output / '.export-of-a-killed-process').mkdir()
    said = convert(
        prefix, '--set', 'model.faster_rcnn.num_classes=2', detector=weights(num_classes=2)
    )
    assert '  of another shape there, freshly initialised: 2' in said
    assert '    box_head/classes/kernel' in said
    assert said[-1] == '2 variables are freshly initialised: train the model before it is used.'
    assert checkpoints.read_shapes(str(output / 'ckpt-0'))['model/box_head/classes/bias'] == [3]
    assert read_pipeline(str(output / 'pipeline.config')).model.faster_rcnn.num_classes == 2


def test_convert_the_backbone_alone(tmp_path, convert):
    prefix = save(tmp_path / 'source', weights(1.0))
    said = convert(prefix, '--checkpoint_type', 'classification', detector=weights())
    assert said[:2] == [f"checkpoint {prefix}, as 'classification':", '  restored: 1']
    assert said[-1] == '2 variables are freshly initialised: train the model before it is used.'


def test_convert_takes_the_most_that_a_file_can_serve(tmp_path, convert):
    arrays = {'resnet_v1_50/conv1/weights': np.ones([7, 7, 3, 4], np.float32)}
    path = third_party_files.write_checkpoint(tmp_path / 'slim.ckpt', arrays)
    said = convert(path, detector=weights())
    assert said[:2] == [f"TF-Slim ResNet v1 {path}, as 'classification':", '  restored: 1']
    reader = tf.train.load_checkpoint(str(tmp_path / 'out'))
    kernel = reader.get_tensor('model/backbone/conv1_conv/kernel/.ATTRIBUTES/VARIABLE_VALUE')
    np.testing.assert_array_equal(kernel, np.ones([7, 7, 3, 4]))


def test_convert_replaces_nothing_else_and_leaves_nothing_after_a_failure(tmp_path, convert):
    prefix, output = save(tmp_path / 'source', weights()), tmp_path / 'out'
    output.mkdir()
    (output / 'ckpt-3.index').write_text('')
    assert 'holds ckpt-3.index; give another' in str(convert(prefix, fails=True))
    assert files_in(output) == ['ckpt-3.index']
    (output / 'ckpt-3.index').unlink()
    other = weights()
    other.variables['backbone/conv1_conv/kernel'] = tf.Variable(tf.zeros([7, 7, 3, 8]))
    assert 'of another shape' in str(convert(prefix, detector=other, fails=True))
    assert files_in(output) == []


@pytest.mark.parametrize('left', [[], CONVERTED[1:2], CONVERTED[1:3], CONVERTED[1:], CONVERTED[3:]])
def test_convert_again_after_a_kill(tmp_path, convert, left):
    """The state file is removed, then the files are moved one by one."""
    prefix, output = save(tmp_path / 'source', weights(1.0)), tmp_path / 'out'
    scratch = output / '.export-killed'
    (scratch / 'new').mkdir(parents=True)
    for name in left:
        (output / name).write_text('of the killed one')
    convert(prefix, detector=weights())
    assert files_in(output) == CONVERTED
    assert checkpoints.find(str(output)) == f'{output}/ckpt-0'


def test_convert_that_cannot_write_all_leaves_the_earlier_one(tmp_path, convert, monkeypatch):
    prefix, output = save(tmp_path / 'source', weights(1.0)), tmp_path / 'out'
    convert(prefix, detector=weights())
    replace, failures = os.replace, [1]

    def fail(source, target):
        if os.fspath(target) == f'{output}/{CONVERTED[2]}' and failures:
            failures.clear()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, 'replace', fail)
        assert 'No space left' in str(convert(prefix, detector=weights(), fails=True))
    assert files_in(output) == CONVERTED
    convert(prefix, detector=weights())
    assert files_in(output) == CONVERTED


def test_convert_does_not_take_a_lone_config_for_its_own(tmp_path, convert):
    output = tmp_path / 'out'
    output.mkdir()
    (output / 'pipeline.config').write_text('mine')
    prefix = save(tmp_path / 'source', weights())
    assert 'holds pipeline.config' in str(convert(prefix, fails=True))


def test_convert_checks_free_space_before_it_restores(tmp_path, convert, monkeypatch):
    prefix = save(tmp_path / 'source', weights(1.0))
    monkeypatch.setattr(disk, 'free_bytes', lambda directory: 100)
    detector = weights()
    assert 'Received: 0.1 kB free' in str(convert(prefix, detector=detector, fails=True))
    assert set(detector.values().values()) == {0.0}
    assert files_in(tmp_path / 'out') == []
    odd = ('--output', tmp_path / 'out[1]')
    assert 'expected a path without' in str(convert(prefix, *odd, detector=detector, fails=True))


def test_help_does_not_load_tensorflow():
    code = (
        'import sys; from click.testing import CliRunner;'
        'from object_detection.cli.checkpoint import command;'
        "CliRunner().invoke(command, ['convert', '--help']);"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0
