"""An installed package and a module of --plugin bring parts that a config and commands name."""

import csv
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import click
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection import register
from object_detection.builders import optimizer_builder
from object_detection.builders.optimizer_builder import LEARNING_RATES, OPTIMIZERS
from object_detection.cli.main import main
from object_detection.errors import UserError
from object_detection.protos.optimizer_pb2 import Optimizer
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import forks, quick_graphs, toy_family
from tests.meta_architectures.ssd import configs
from tests.plugin.toy_parts.losses import Asymmetric
from tests.plugin.toy_parts.optimizers import InverseRoot, Signum
from tests.plugin.toy_parts.steps import Posterize

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
LOSS = """
  num_classes: 2
  feature_extractor {
    type: 'ssd_fpn' backbone: 'plain' neck: 'laterals' depth_multiplier: 1 min_depth: 16
    fpn { min_level: 3 max_level: 6 additional_layer_depth: 24 }
  }
  anchor_generator { ssd_anchor_generator { num_layers: 4 } }
  loss {
    classification_loss {
      plugin { name: 'asymmetric' options { key: 'background' value: '0.25' } }
    }
    localization_loss { plugin { name: 'log_cosh' options { key: 'sharpness' value: '2' } } }
  }
"""
FAMILY = """
model {
  experimental_model {
    name: 'mean_colour' num_classes: 2
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
    options { key: 'brightness' value: '0.5' }
  }
}
"""
REST = """
train_config {
  batch_size: 2 num_steps: 2
  optimizer {
    plugin {
      name: 'signum' options { key: 'share' value: '0.5' }
      learning_rate { plugin { name: 'inverse_root' options { key: 'base' value: '0.004' } } }
    }
  }
  data_augmentation_options {
    plugin { name: 'posterize' options { key: 'bits' value: '3' } }
  }
  callback { name: 'csv' options { key: 'file_name' value: 'all.csv' } }
}
train_input_reader {
  label_map_path: 'data/train_label_map.pbtxt'
  tf_record_input_reader { input_path: 'data/train-00000-of-00001' }
}
eval_config { metrics_set: 'count_metrics' }
eval_input_reader {
  label_map_path: 'data/train_label_map.pbtxt'
  tf_record_input_reader { input_path: 'data/train-00000-of-00001' }
}
"""
PLACES = ('--config', 'toy.config', '--checkpoint_dir', 'model')
FAMILY_PLACES = ('--config', 'family.config', '--checkpoint_dir', 'family')
PLUGIN = ('--plugin', 'toy_parts.registered')
VERIFY = ('--verify', 'red.png')
COMMANDS = (
    ('convert', 'lines', '--annotations', 'boxes.txt', '--output', 'data/train', '--shards', '1'),
    ('config', 'check', 'toy.config'),
    ('config', 'check', 'toy.config', *PLUGIN),
    # The list of modules is that of the process from now on, and of those that it starts.
    ('train', *PLACES[:2], '--model_dir', 'model', '--log_every_n', '1', '--eval_every_n', '2'),
    ('train', *FAMILY_PLACES[:2], '--model_dir', 'family', '--noevaluate'),
    ('eval', *FAMILY_PLACES, '--model_dir', 'family', '--run_once'),
    ('export', *FAMILY_PLACES, '--output', 'family_out', *VERIFY),
    ('export', *FAMILY_PLACES, '--output', 'out', '--format', 'frozen_graph', *VERIFY),
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A folder in which the package was installed, and commands named parts of it."""
    folder = tmp_path_factory.mktemp('plugin')
    source = shutil.copytree(HERE, folder / 'source')  # the installation leaves files in it
    command = [sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--no-build-isolation']
    subprocess.run([*command, '--no-index', '--target', folder / 'site', source], check=True)
    for name, color in (('red', (200, 30, 30)), ('blue', (30, 30, 200))):
        image = np.full((64, 64, 3), 90, np.uint8)
        image[10:40, 10:50] = color
        Image.fromarray(image).save(folder / f'{name}.png')
    (folder / 'boxes.txt').write_text('red.png warm 10 10 50 40\nblue.png cold 10 10 50 40\n')
    model = configs.tiny()
    model.ssd.ClearField('loss')
    model.ssd.feature_extractor.ClearField('num_layers')
    text_format.Merge(LOSS, model.ssd)
    text = text_format.MessageToString(TrainEvalPipelineConfig(model=model)) + REST
    (folder / 'toy.config').write_text(text)
    (folder / 'family.config').write_text(FAMILY + REST)
    return folder


@pytest.fixture(scope='module')
def output(folder):
    """What the commands printed."""
    forks.call(_run, COMMANDS, folder)
    return (folder / 'printed.txt').read_text()


def _run(commands, folder):
    """Runs commands in this process, where the package is installed from now on."""
    sys.path.insert(0, str(folder / 'site'))
    os.chdir(folder)
    with open('printed.txt', 'w') as printed:
        os.dup2(printed.fileno(), sys.stdout.fileno())
    with quick_graphs.unoptimized(), quick_graphs.plain_data_sets():
        for command in commands:
            try:
                main(command, standalone_mode=False)
            except click.ClickException as error:
                print('refused:', error.message)
            except SystemExit as end:
                if end.code:
                    raise
    sys.stdout.flush()


def test_a_config_alone_loads_no_module(output):
    (line,) = re.findall('refused: (.*)', output.replace('\n', ' '))
    assert 'localization_loss.plugin.name: expected one of asymmetric, which --plugin' in line
    assert "Received: 'log_cosh'" in line
    assert 'Modules of --plugin: none' in line
    assert 'toy.config: ready to train, eval, export.' in output


def test_the_annotation_format(output, folder):
    label_map = (folder / 'data' / 'train_label_map.pbtxt').read_text()
    assert re.findall('name: [\'"](\\w+)', label_map) == ['cold', 'warm']
    assert '2 examples in 1 shards' in output


def test_losses_step_and_callback_of_a_training(output, folder):
    history = (folder / 'model' / 'train' / 'history.jsonl').read_text().splitlines()
    losses = [json.loads(line)['losses']['Loss/total_loss'] for line in history]
    written = _values_of_the_callback(folder / 'model')
    assert [written[step]['Loss/total_loss'] for step in (1, 2)] == losses
    assert {'learning_rate', 'Loss/classification_loss', 'gradient_norm'} < written[2].keys()
    # The training evaluates itself at its end, and another job evaluates the family.
    for name in ('model', 'family'):
        metrics = json.loads((folder / name / 'eval' / 'metrics.json').read_text())
        written = _values_of_the_callback(folder / name)[2].items()
        prefixed = {f'eval/{name}': value for name, value in metrics.items()}.items()
        assert prefixed >= {each for each in written if each[0].startswith('eval/')} != set()


def _values_of_the_callback(folder):
    found = {1: {}, 2: {}}
    with (folder / 'all.csv').open() as file:
        for step, name, value in csv.reader(file):
            found[int(step)][name] = float(value)
    return found


def test_the_optimizer_and_the_learning_rate(output, folder):
    found = _values_of_the_callback(folder / 'model')
    rates = [found[step]['learning_rate'] for step in (1, 2)]
    np.testing.assert_allclose(rates, [0.004, 0.004 / 2**0.5], rtol=1e-6)
    keys = dict(tf.train.list_variables(str(folder / 'model')))
    assert any('/mean/' in key for key in keys), sorted(keys)[:9]


def test_an_optimizer_by_hand():
    optimizer = Signum(share=0.5)(InverseRoot(base=0.5))
    variable = tf.Variable([1.0, 1.0])
    optimizer.build({'v': variable})
    for step, gradient in enumerate(([1.0, -1.0], [-0.25, 3.0])):
        optimizer.apply_gradients({'v': tf.constant(gradient)}, tf.constant(step, tf.int64))
    # The means are (0.5, -0.5) and then (0.125, 1.25).
    np.testing.assert_allclose(variable, [0.5 - 0.125**0.5, 1.5 - 0.125**0.5], rtol=1e-6)


def test_an_optimizer_of_a_plugin_is_checked(monkeypatch):
    monkeypatch.setattr(OPTIMIZERS, '_rows', dict(OPTIMIZERS._rows))
    monkeypatch.setattr(LEARNING_RATES, '_rows', dict(LEARNING_RATES._rows))
    register.optimizer('toy_signum', Signum)
    wrong = dataclasses.make_dataclass('Wrong', [], namespace={'__call__': lambda self, rate: rate})
    register.optimizer('toy_wrong', wrong)
    register.learning_rate('toy_root', InverseRoot)
    rate = "learning_rate { plugin { name: 'toy_root' } }"
    with pytest.raises(UserError, match=r"optimizer 'toy_wrong': expected a subclass"):
        optimizer_builder.check(
            text_format.Parse(f"plugin {{ name: 'toy_wrong' {rate} }}", Optimizer())
        )
    config = text_format.Parse(f"plugin {{ name: 'toy_signum' {rate} }}", Optimizer())
    optimizer_builder.check(config)
    config.learning_rate_unit = Optimizer.EPOCHS
    with pytest.raises(UserError, match=r'learning_rate_unit: expected STEPS with a schedule of'):
        optimizer_builder.check(config)


def test_the_backbone_and_the_neck(output, folder):
    summary = (folder / 'model' / 'model_summary.txt').read_text()
    # 9 * (3 * 8 + 8 * 8 + 8 * 16 + 16 * 16 + 16 * 32) weights.
    assert re.search(r'backbone +conv \(5\) .* 8,856 ', summary)
    # 24 * (16 + 16 + 32) weights of size 1, and 9 * 24 * 24 of the coarser map.
    assert re.search(r'fpn +conv \(4\) .* 6,720 ', summary)


def test_the_family(output, folder):
    line = (folder / 'family' / 'train' / 'history.jsonl').read_text().splitlines()[-1]
    assert {*toy_family.LOSSES} < json.loads(line)['losses'].keys()
    assert list((folder / 'family').glob('ckpt-*.index'))
    metrics = json.loads((folder / 'family' / 'eval' / 'metrics.json').read_text())
    assert metrics['Counts/Accuracy'] in (0, 0.5, 1)
    assert {*toy_family.LOSSES} < metrics.keys()
    model = tf.saved_model.load(str(folder / 'family_out' / 'saved_model'))
    image = np.asarray(Image.open(folder / 'red.png'))[np.newaxis]
    found = model.signatures['serving_default'](tf.constant(image))
    assert found['detection_boxes'].shape == (1, 1, 4)
    assert output.count('images: ') == 2


def test_the_metric_set(output, folder):
    metrics = json.loads((folder / 'model' / 'eval' / 'metrics.json').read_text())
    assert metrics['Counts/Accuracy'] in (0, 0.5, 1)
    assert metrics['Loss/classification_loss'] > 0


def test_the_export_format(output, folder):
    described = json.loads((folder / 'out' / 'model.pb.json').read_text())
    assert described['format'] == 'frozen_graph'
    assert [each['name'] for each in described['classes']] == ['cold', 'warm']
    assert output.count('1 images: 1 detections in process, 0 without counterpart') == 2


def test_the_losses_by_hand():
    loss = Asymmetric(background=0.25)(tf.zeros([1, 1, 2]), tf.constant([[[1.0, 0.0]]]), 2.0)
    np.testing.assert_allclose(loss, [[[2 * np.log(2), 0.5 * np.log(2)]]], rtol=1e-6)
    image = Posterize(bits=2)({'image': tf.constant([63.0, 64.0, 255.0])}, None)['image']
    assert image.numpy().tolist() == [0, 64, 192]


def test_every_kind_has_a_function_that_loads_no_tensorflow():
    found = []
    for path in (ROOT / 'object_detection').rglob('*.py'):
        found += re.findall(r"= Registry\(\s*'([\w ]+)'", path.read_text())
    kinds = {kind.replace(' ', '_') for kind in found}
    functions = {n for n, f in vars(register).items() if hasattr(f, '__code__') and n[0] != '_'}
    assert functions == kinds
    assert len(kinds) == len(found) >= 9
    code = 'import sys; from object_detection import register; print("tensorflow" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'False\n'


def test_the_guides_show_the_files_of_the_package():
    guides = [ROOT / 'docs' / 'howto' / name for name in ('plugins.md', 'backbone.md')]
    files = [HERE / 'pyproject.toml', *sorted((HERE / 'toy_parts').glob('[a-z]*.py'))]
    assert len(files) == 11
    text = ''.join(guide.read_text() for guide in guides)
    shown = set(re.findall('^--8<-- "(.+)"$', text, re.MULTILINE))
    assert shown == {path.relative_to(ROOT).as_posix() for path in files}
