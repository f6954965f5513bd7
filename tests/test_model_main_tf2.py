"""Flags of model_main_tf2 and of `tfod train` and `tfod eval`."""

import logging
import pathlib
import subprocess
import sys
import types

import click.testing
import pytest
from absl import flags

from object_detection import model_main_tf2
from object_detection.cli import eval as eval_command
from object_detection.cli import train as train_command

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def calls(monkeypatch):
    """Records what the programs would run, instead of running it."""
    recorded = {}

    def record(name, status=0):
        def function(*args, **kwargs):
            recorded[name] = (args, kwargs)
            return types.SimpleNamespace(exit_status=status)

        return function

    monkeypatch.setattr('object_detection.training.jobs.read_config', record('config'))
    monkeypatch.setattr('object_detection.training.jobs.show_log', lambda: None)
    loop = types.ModuleType('loop')
    loop.train = record('train', status=143)
    loop.Intervals = lambda **values: values
    monkeypatch.setitem(sys.modules, 'object_detection.training.loop', loop)
    evaluate = types.ModuleType('evaluate')
    evaluate.evaluate_directory = record('evaluate')
    monkeypatch.setitem(sys.modules, 'object_detection.training.evaluate', evaluate)
    return recorded


@pytest.fixture
def main(monkeypatch):
    """Runs model_main_tf2's `main` with flags of its own."""
    values = flags.FlagValues()
    monkeypatch.setattr(flags, 'FLAGS', values)
    for kind in ('string', 'integer', 'bool', 'enum', 'multi_string'):
        define = getattr(flags, f'DEFINE_{kind}')
        monkeypatch.setattr(
            flags,
            f'DEFINE_{kind}',
            lambda *args, define=define: define(*args, flag_values=values),
        )
    required = flags.mark_flags_as_required
    monkeypatch.setattr(
        flags, 'mark_flags_as_required', lambda names: required(names, flag_values=values)
    )
    model_main_tf2.define_flags()

    def run(*arguments):
        rest = values(['program', '--pipeline_config_path=a.config', '--model_dir=dir', *arguments])
        return model_main_tf2.main(rest)

    return run


def test_training(main, calls):
    status = main(
        '--num_train_steps=9',
        '--checkpoint_every_n=3',
        '--norecord_summaries',
        '--set=train_config.batch_size=4',
        '--set',
        'train_config.num_steps=5',
        '--precision=bfloat16',
        '--max_to_keep=0',
    )
    assert status == 143
    args, options = calls['config']
    assert args == ('a.config',)
    assert options['for_what'] == 'train'
    assert options['num_train_steps'] == 9
    assert options['settings'] == ['train_config.batch_size=4', 'train_config.num_steps=5']
    args, options = calls['train']
    assert args[1] == 'dir'
    assert options['intervals'] == {'log': 100, 'checkpoint': 3, 'evaluation': 0, 'call': 1}
    assert options['record_summaries'] is False
    assert options['precision'] == 'bfloat16'
    assert options['max_to_keep'] is None
    assert 'evaluate' not in calls


@pytest.mark.parametrize(
    ('argument', 'value'),
    [
        ('--record_summaries=False', False),
        ('--record_summaries=true', True),
        ('--record_summaries', True),
    ],
)
def test_forms_of_boolean_flags(main, calls, argument, value):
    main(argument)
    assert calls['train'][1]['record_summaries'] is value


def test_evaluation_during_training(main, calls):
    main('--eval_every_n_steps=5')
    assert calls['config'][1]['for_what'] == 'train and eval'
    assert calls['train'][1]['intervals']['evaluation'] == 5


def test_evaluation_only(main, calls):
    assert main('--checkpoint_dir=there', '--eval_timeout=7') == 0
    assert calls['config'][1]['for_what'] == 'eval'
    args, options = calls['evaluate']
    assert args[1] == 'there'
    assert options['output_dir'] == 'dir'
    assert options['timeout'] == 7
    assert 'train' not in calls


def test_evaluation_once(main, calls):
    main('--checkpoint_dir=there', '--run_once')
    assert calls['evaluate'][1]['timeout'] == 0


@pytest.mark.parametrize('argument', ['--use_tpu', '--num_workers=2', '--tpu_name=x'])
def test_several_devices_are_rejected(main, calls, argument):
    with pytest.raises(ValueError, match='not supported yet'):
        main(argument)
    assert not calls


def test_a_flag_that_would_have_no_effect_is_rejected(main, calls):
    with pytest.raises(Exception, match='--run_once: expected --checkpoint_dir'):
        main('--run_once')
    with pytest.raises(Exception, match='Expected flags only'):
        main('stray')


def test_tfod_train(calls):
    arguments = '--config a.config --model_dir dir --num_train_steps 9 --seed 3 --set a.b=1'
    result = click.testing.CliRunner().invoke(train_command.command, arguments.split())
    assert result.exit_code == 143
    assert calls['config'][1]['settings'] == ('a.b=1',)
    assert calls['train'][1]['seed'] == 3
    assert calls['train'][1]['max_to_keep'] == 7


@pytest.mark.parametrize('is_prefix', [False, True])
def test_tfod_eval(calls, tmp_path, is_prefix):
    path = tmp_path / 'ckpt-3' if is_prefix else tmp_path
    arguments = ['--config', 'a.config', '--checkpoint_dir', str(path), '--run_once']
    result = click.testing.CliRunner().invoke(eval_command.command, arguments)
    assert result.exit_code == 0, result.output
    assert calls['evaluate'][1]['output_dir'] == str(tmp_path)
    assert calls['evaluate'][1]['timeout'] == 0


@pytest.mark.parametrize(
    'command',
    [
        [sys.executable, '-m', 'object_detection.model_main_tf2'],
        [sys.executable, str(ROOT / 'object_detection' / 'model_main_tf2.py')],
    ],
)
def test_runs_as_a_module_and_as_a_file(command, tmp_path):
    arguments = ['--pipeline_config_path=missing.config', '--model_dir=x', '--alsologtostderr']
    result = subprocess.run(
        [*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith('Error: missing.config')
    assert not list(tmp_path.iterdir())


def test_help_imports_no_tensorflow():
    command = [sys.executable, '-X', 'importtime', '-m', 'object_detection.model_main_tf2']
    result = subprocess.run([*command, '--help'], capture_output=True, text=True, check=False)
    assert '--checkpoint_every_n' in result.stdout
    assert 'absl.flags' in result.stderr
    assert 'tensorflow' not in result.stderr
    assert 'keras' not in result.stderr


def test_the_log_goes_to_what_stderr_is(capsys):
    from object_detection.training import jobs

    logger = logging.getLogger('object_detection')
    before = (list(logger.handlers), logger.level, logger.propagate)
    try:
        jobs.show_log()
        jobs.show_log()
        logging.getLogger('object_detection.some').info('hello')
        assert capsys.readouterr().err.count('hello') == 1
    finally:
        logger.handlers[:], logger.level, logger.propagate = before[0], before[1], before[2]
