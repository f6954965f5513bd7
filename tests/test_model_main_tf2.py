"""Flags of model_main_tf2 and of `tfod train` and `tfod eval`."""

import logging
import pathlib
import re
import subprocess
import sys

import click.testing
import pytest
from absl import flags

from object_detection import model_main_tf2, registry
from object_detection.cli import eval as eval_command
from object_detection.cli import train as train_command
from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def calls(monkeypatch):
    """Records what the programs would run, instead of running it."""
    recorded = {}

    def record(name, status):
        def function(*args, **kwargs):
            recorded[name] = (args, kwargs)
            return status

        return function

    monkeypatch.setattr('object_detection.training.jobs.run_training', record('train', 143))
    monkeypatch.setattr('object_detection.training.jobs.run_evaluation', record('evaluate', 0))
    return recorded


@pytest.fixture
def main(monkeypatch):
    """Runs model_main_tf2's `main` with flags of its own."""
    values = flags.FlagValues()
    monkeypatch.setattr(flags, 'FLAGS', values)
    for kind in ('string', 'integer', 'float', 'bool', 'enum', 'multi_string', 'alias'):
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
    (config, model_dir, options), _ = calls['train']
    assert (config, model_dir) == ('a.config', 'dir')
    assert options == TrainOptions(
        num_train_steps=9,
        checkpoint_every_n=3,
        record_summaries=False,
        set=('train_config.batch_size=4', 'train_config.num_steps=5'),
        precision='bfloat16',
        max_to_keep=0,
    )
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
    assert calls['train'][0][2].record_summaries is value


def test_evaluation_only(main, calls):
    assert main('--checkpoint_dir=there', '--eval_timeout=7', '--run_once') == 0
    assert calls['evaluate'][0] == (
        'a.config',
        'there',
        'dir',
        EvalOptions(eval_timeout=7, run_once=True),
    )
    assert 'train' not in calls


def test_a_flag_that_would_have_no_effect_is_rejected(main, calls):
    with pytest.raises(Exception, match='--run_once: expected --checkpoint_dir'):
        main('--run_once')
    with pytest.raises(Exception, match='Expected flags only'):
        main('stray')


def test_tfod_train(calls):
    arguments = '--config a.config --model_dir dir --num_epochs 1.5 --seed 3 --set a.b=1 --use_tpu'
    result = click.testing.CliRunner().invoke(train_command.command, arguments.split())
    assert result.exit_code == 143
    options = TrainOptions(num_epochs=1.5, seed=3, set=('a.b=1',), use_tpu=True)
    assert calls['train'][0] == ('a.config', 'dir', options)


@pytest.mark.parametrize('is_prefix', [False, True])
def test_tfod_eval(calls, tmp_path, is_prefix):
    path = tmp_path / 'ckpt-3' if is_prefix else tmp_path
    (tmp_path / 'ckpt-3.index').touch()
    arguments = ['--config', 'a.config', '--checkpoint_dir', str(path), '--run_once']
    result = click.testing.CliRunner().invoke(eval_command.command, arguments)
    assert result.exit_code == 0, result.output
    assert calls['evaluate'][0] == (
        'a.config',
        str(path),
        str(tmp_path),
        EvalOptions(run_once=True),
    )


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
    assert result.stderr.startswith('Error: --pipeline_config_path missing.config: there')
    assert not list(tmp_path.iterdir())


def test_flags_of_the_other_job_are_reported(main, calls, capsys):
    main('--eval_timeout=7', '--seed=1')
    assert capsys.readouterr().err == (
        '--eval_timeout has no effect without --checkpoint_dir, which this training lacks.\n'
    )
    main('--checkpoint_dir=there', '--eval_timeout=7', '--noevaluate', '--seed=1')
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f'--{name} has no effect on an evaluation (--checkpoint_dir).'
        for name in ('evaluate', 'seed')
    ]


def test_plugins_are_imported(main, calls, monkeypatch):
    monkeypatch.setenv(registry.PLUGINS_VARIABLE, '')
    main('--plugin=json', '--plugin=csv')
    assert registry.plugins() == ['json', 'csv']
    with pytest.raises(UserError, match='--plugin no_such: expected the name of a Python module'):
        main('--plugin=no_such')


def test_other_names_of_flags(main, calls):
    main('--eval_every_n=5', '--num_processes=2')
    expected = TrainOptions(eval_every_n_steps=5, num_workers=2)
    assert calls['train'][0][2] == expected
    arguments = '--pipeline_config_path a.config --model_dir dir --eval_every_n 5 --num_processes 2'
    click.testing.CliRunner().invoke(train_command.command, arguments.split())
    assert calls['train'][0] == ('a.config', 'dir', expected)


def test_a_flag_without_effect_is_reported_by_another_name_too(main, calls, capsys):
    main('--checkpoint_dir=there', '--eval_every_n=5')
    assert capsys.readouterr().err.startswith('--eval_every_n_steps has no effect')


def test_help_says_how_programs_end():
    runner = click.testing.CliRunner()
    train = runner.invoke(train_command.command, ['--help']).output
    evaluation = runner.invoke(eval_command.command, ['--help']).output
    assert all(status in train for status in ('75', '130', '143'))
    assert all(status in evaluation for status in ('130', '143'))
    assert all(status in model_main_tf2.__doc__ for status in ('75', '130', '143'))


def test_help_of_an_evaluation_shows_no_length_of_a_training(calls):
    runner = click.testing.CliRunner()
    assert '--num_train_steps' not in runner.invoke(eval_command.command, ['--help']).output
    arguments = ['--config', 'a', '--checkpoint_dir', 'b', '--num_train_steps', '3']
    assert runner.invoke(eval_command.command, arguments).exit_code == 0
    assert calls['evaluate'][0][3].num_train_steps == 3


def test_help_imports_no_tensorflow():
    command = [sys.executable, '-X', 'importtime', '-m', 'object_detection.model_main_tf2']
    result = subprocess.run([*command, '--help'], capture_output=True, text=True, check=False)
    assert '--checkpoint_every_n' in result.stdout
    assert 'absl.flags' in result.stderr
    assert not re.search(r'\|\s+(tensorflow|keras)\b', result.stderr)


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
