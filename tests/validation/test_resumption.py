"""A training that is resumed with another config."""

import pytest

from object_detection.config import show
from object_detection.config.overrides import apply_setting
from object_detection.errors import ConfigError
from object_detection.validation import resumption
from tests.validation.pipelines import sound_pipeline

MODEL = 'model.faster_rcnn'


@pytest.fixture
def started(tmp_path):
    """Returns a config and the model_dir of a training that was started with it."""
    pipeline = sound_pipeline(tmp_path)
    directory = tmp_path / 'model'
    directory.mkdir()
    show.write_pipeline(pipeline, directory / resumption.CONFIG_FILE_NAME)
    resumption.write_classes(pipeline, directory)
    return pipeline, str(directory)


def _write_label_map(tmp_path, *names):
    items = [f'item {{ id: {i} name: "{name}" }}' for i, name in enumerate(names, 1)]
    (tmp_path / 'label_map.pbtxt').write_text('\n'.join(items))


def test_nothing_changed(started, caplog):
    resumption.check(*started)
    resumption.log_changes(*started)
    assert not caplog.messages


def test_another_number_of_classes_is_named_first(started):
    pipeline, directory = started
    apply_setting(pipeline, f'{MODEL}.num_classes=4')
    with pytest.raises(ConfigError) as error:
        resumption.check(pipeline, directory)
    expected = f'{MODEL}.num_classes is 4, and 2 in the training of {directory}.'
    assert str(error.value).startswith(expected)


@pytest.mark.parametrize('names', [('b', 'a'), ('a', 'c')])
def test_other_classes_by_the_same_ids(started, tmp_path, names):
    _write_label_map(tmp_path, *names)
    with pytest.raises(ConfigError, match=r"id 2 is 'b' there and '[ac]' here"):
        resumption.check(*started)


def test_a_label_map_of_the_user_in_the_same_folder_is_left_alone(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.train_input_reader.label_map_path = str(tmp_path / 'label_map.pbtxt')
    own = '# mine\nitem { id: 1 name: "a" } item { id: 2 name: "b" }'
    (tmp_path / 'label_map.pbtxt').write_text(own)
    show.write_pipeline(pipeline, tmp_path / resumption.CONFIG_FILE_NAME)
    resumption.write_classes(pipeline, str(tmp_path))
    assert (tmp_path / 'label_map.pbtxt').read_text() == own
    _write_label_map(tmp_path, 'b', 'a')
    with pytest.raises(ConfigError, match="id 1 is 'a' there and 'b' here"):
        resumption.check(pipeline, str(tmp_path))


def test_more_classes_and_other_spellings_are_the_same_classes(started, tmp_path):
    _write_label_map(tmp_path, 'A ', 'b', 'c')
    resumption.check(*started)


def test_a_label_map_that_is_gone_is_left_to_the_rules(started, tmp_path):
    (tmp_path / 'label_map.pbtxt').unlink()
    resumption.check(*started)


def test_changes_are_logged(started, caplog):
    pipeline, directory = started
    apply_setting(pipeline, 'train_config.batch_size=4')
    rate = 'train_config.optimizer.momentum_optimizer.learning_rate.constant_learning_rate'
    apply_setting(pipeline, f'{rate}.learning_rate=0.5')
    pipeline.train_config.ClearField('num_steps')
    apply_setting(pipeline, 'train_config.precision=MIXED_BFLOAT16')
    resumption.check(pipeline, directory)
    resumption.log_changes(pipeline, directory)
    (message,) = caplog.messages
    assert message.startswith('changed since the last start: ')
    for change in (
        'train_config.batch_size: 2 -> 4',
        f'{rate}.learning_rate: not set -> 0.5',
        'train_config.num_steps: 10 -> not set',
        'train_config.precision: not set -> MIXED_BFLOAT16',
    ):
        assert change in message


def test_many_changes_are_counted(started, caplog):
    pipeline, directory = started
    pipeline.ClearField('train_input_reader')
    pipeline.ClearField('model')
    resumption.log_changes(pipeline, directory)
    assert caplog.messages[0].count('->') == 12
    assert caplog.messages[0].endswith(' more')


def test_evaluations_are_compared_with_a_training_that_keeps_a_best_model(started, tmp_path):
    pipeline, directory = started
    assert resumption.evaluation_changes(pipeline, str(tmp_path / 'none')) is None
    assert resumption.evaluation_changes(pipeline, directory) == []
    apply_setting(pipeline, 'eval_config.best_checkpoint.keep=false')
    show.write_pipeline(pipeline, f'{directory}/{resumption.CONFIG_FILE_NAME}')
    assert resumption.evaluation_changes(pipeline, directory) is None


def test_what_an_earlier_version_did_not_write_is_not_compared(tmp_path, caplog):
    pipeline = sound_pipeline(tmp_path)
    directory = str(tmp_path / 'old')
    resumption.check(pipeline, directory)
    resumption.log_changes(pipeline, directory)
    assert not caplog.messages
