"""What is left of killed saves and damaged disks, and how a training goes on from there."""

import logging
import os
import pathlib

import pytest

from object_detection.errors import CheckpointError, UnreadableCheckpointError
from object_detection.training.checkpoints import recovery
from object_detection.weights import checkpoint_files, checkpoints
from tests.weights.tiny_checkpoints import (
    files_of,
    make_checkpoints,
    make_variables,
    names_in,
    state_of,
)

DATA = 'data-00000-of-00001'


@pytest.fixture
def saved(tmp_path):
    """A folder with ckpt-1 to ckpt-3, at the steps 10, 20, 30."""
    saver = make_checkpoints(tmp_path, make_variables())
    for step in (10, 20, 30):
        saver._variables['step'].assign(step)
        saver.save()
    return tmp_path


def _prepare(directory):
    prefix = recovery.prepare(str(directory))
    return None if prefix is None else pathlib.Path(prefix).name


def _save_unnamed(directory, number):
    """Writes a complete checkpoint that the state file does not name."""
    for ending in ('index', DATA):
        content = (directory / f'ckpt-3.{ending}').read_bytes()
        (directory / f'ckpt-{number}.{ending}').write_bytes(content)


def _cut(path):
    os.truncate(path, path.stat().st_size // 2)


def test_leftovers_are_removed_in_one_line_and_nothing_else(saved, caplog):
    draft = saved / 'ckpt-4_temp'
    draft.mkdir()
    (draft / f'part-00000-of-00001.{DATA}.tempstate123').write_bytes(b'x')
    left = [
        'checkpoint.tmp0123456789abcdef0123456789abcdef',
        f'ckpt-0.{DATA}',
        f'ckpt-4.{DATA}.tempstate77',
        'ckpt-4.index.tempstate77',
        'ckpt-4_temp',
        'ckpt-5_temp_file',
        f'ckpt-6.{DATA}',
    ]
    for name in left:
        if name != 'ckpt-4_temp':
            (saved / name).write_bytes(b'x')
    users = ['best', 'ckpt-9.txt', 'ckpt-notes', 'model.ckpt-9.index', 'my_ckpt-4_temp', 'x.tmp']
    for name in users:
        (saved / name).write_bytes(b'x')
    with caplog.at_level(logging.INFO):
        assert recovery.sweep(str(saved)) == left
    assert names_in(saved) == sorted(files_of(1, 2, 3) + users)
    assert caplog.text.count('removed what a killed save left') == 1
    assert ', '.join(left) in caplog.text
    assert recovery.sweep(str(saved)) == []


def test_a_checkpoint_that_was_not_committed_is_never_taken(saved):
    _save_unnamed(saved, 4)
    assert checkpoints.find(str(saved)).endswith('ckpt-3')
    assert _prepare(saved) == 'ckpt-3'
    assert names_in(saved) == files_of(1, 2, 3)


def test_older_checkpoints_that_are_not_named_stay(tmp_path):
    saver = make_checkpoints(tmp_path, make_variables(), max_to_keep=1)
    saver.save()
    kept = {path.name: path.read_bytes() for path in tmp_path.glob('ckpt-1.*')}
    saver.save()
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    assert _prepare(tmp_path) == 'ckpt-2'
    assert names_in(tmp_path) == files_of(1, 2)


@pytest.mark.parametrize('ending', ['index', DATA])
@pytest.mark.parametrize('damage', [_cut, lambda path: os.truncate(path, 0), os.remove])
def test_goes_back_to_the_newest_that_is_whole(saved, ending, damage, caplog):
    damage(saved / f'ckpt-3.{ending}')
    with pytest.raises(CheckpointError, match=r'ckpt-3'):
        checkpoints.restore_model(str(saved / 'ckpt-3'), make_variables())
    assert _prepare(saved) == 'ckpt-2'
    assert 'ckpt-3: cannot be read as a checkpoint' in caplog.text
    assert f'Going back to {saved / "ckpt-2"}' in caplog.text
    assert state_of(saved) == [1, 2]
    assert not list(saved.glob(f'ckpt-3.{ending}'))
    model = make_variables(0.0)
    saver = make_checkpoints(saved, model)
    assert saver.restore_latest().endswith('ckpt-2')
    assert saver.save().endswith('ckpt-3')
    assert state_of(saved) == [1, 2, 3]


def test_changed_bytes_are_noticed_and_put_aside(saved, caplog):
    with (saved / f'ckpt-3.{DATA}').open('r+b') as file:
        file.seek(8)
        file.write(b'\xff\x00\xff')
    assert _prepare(saved) == 'ckpt-2'
    assert 'Checksum does not match' in caplog.text
    aside = [f'ckpt-3.{DATA}.damaged', 'ckpt-3.index.damaged']
    assert names_in(saved) == sorted(files_of(1, 2) + aside)
    # They stay there.
    assert _prepare(saved) == 'ckpt-2'
    assert set(aside) <= set(names_in(saved))


def _hide(path):
    """Makes a file one that the system cannot read, whoever asks: a link to itself."""
    kept = path.with_name(f'kept-{path.name}')
    path.rename(kept)
    path.symlink_to(path.name)
    return kept


@pytest.mark.parametrize('name', [f'ckpt-3.{DATA}', 'checkpoint'])
def test_a_file_that_cannot_be_read_now_is_not_taken_for_corrupt(saved, name):
    before = names_in(saved)
    kept = _hide(saved / name)
    with pytest.raises(UnreadableCheckpointError, match=f'{name}: expected a file that can be'):
        _prepare(saved)
    kept.replace(saved / name)
    assert names_in(saved) == before
    assert _prepare(saved) == 'ckpt-3'


def test_an_error_of_reading_that_passes_changes_nothing(saved, monkeypatch):
    load = checkpoint_files.tf.train.load_checkpoint
    errors = [checkpoint_files.tf.errors.OpError(None, None, 'Input/output error', 2)]

    def load_at_the_second_time(prefix):
        if errors:
            raise errors.pop()
        return load(prefix)

    monkeypatch.setattr(checkpoint_files.tf.train, 'load_checkpoint', load_at_the_second_time)
    assert _prepare(saved) == 'ckpt-3'
    assert state_of(saved) == [1, 2, 3]


def test_none_whole_is_an_error_that_changes_nothing(saved):
    for path in saved.glob('*.data*'):
        _cut(path)
    with pytest.raises(CheckpointError, match=r'no checkpoint that is whole.*ckpt-3.*ckpt-1'):
        _prepare(saved)
    assert names_in(saved) == files_of(1, 2, 3)


def test_a_name_whose_files_are_half_deleted_is_dropped(saved):
    os.remove(saved / 'ckpt-1.index')
    assert _prepare(saved) == 'ckpt-3'
    assert state_of(saved) == [2, 3]
    assert names_in(saved) == files_of(2, 3)


def _remove(path):
    path.unlink()


@pytest.mark.parametrize(
    'damage', [_remove, lambda path: path.write_text(''), lambda path: path.write_bytes(b'\xff{')]
)
def test_without_a_state_file_the_newest_whole_one_is_committed(saved, damage, caplog):
    damage(saved / 'checkpoint')
    _cut(saved / f'ckpt-3.{DATA}')
    with pytest.raises(CheckpointError, match=r'ckpt-3 is complete, and can be named instead'):
        checkpoints.find(str(saved))
    assert _prepare(saved) == 'ckpt-2'
    assert f'Going on from {saved / "ckpt-2"}' in caplog.text
    # The others are not named, so that they are not deleted as old ones.
    assert state_of(saved) == [2]
    saver = make_checkpoints(saved, make_variables(), max_to_keep=1)
    assert saver.restore_latest().endswith('ckpt-2')
    saver.save()
    assert {'ckpt-1.index', 'ckpt-3.index'} <= set(names_in(saved))
    assert 'ckpt-2.index' not in names_in(saved)


def test_a_corrupt_state_file_is_reported_by_all_who_read_it(saved):
    (saved / 'checkpoint').write_text('')
    with pytest.raises(CheckpointError, match='damaged file'):
        make_checkpoints(saved, make_variables())
    for path in saved.glob('ckpt-*'):
        path.unlink()
    with pytest.raises(CheckpointError, match=r'no checkpoint that is whole.*damaged file'):
        _prepare(saved)


def test_a_first_save_that_was_killed_leaves_nothing(tmp_path):
    make_checkpoints(tmp_path, make_variables()).save()
    os.remove(tmp_path / 'checkpoint')
    _cut(tmp_path / 'ckpt-1.index')
    assert _prepare(tmp_path) is None
    assert names_in(tmp_path) == []


def test_a_new_folder_is_made(tmp_path):
    assert _prepare(tmp_path / 'new' / 'model') is None
    assert names_in(tmp_path / 'new' / 'model') == []


def test_paths_that_tensorflow_cannot_read_again_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r'run\[1\]: expected a path without'):
        _prepare(tmp_path / 'run[1]')
    assert names_in(tmp_path) == []


def test_the_state_is_written_as_it_was_read_and_can_be_moved(saved):
    state = checkpoint_files.read_state(str(saved))
    checkpoint_files.write_state(str(saved), state)
    assert checkpoint_files.read_state(str(saved)) == state
    moved = saved.rename(saved.with_name('moved "model"'))
    assert checkpoints.find(str(moved)) == str(moved / 'ckpt-3')
    assert _prepare(moved) == 'ckpt-3'


def test_a_state_file_that_is_being_replaced_is_read_again(saved, monkeypatch):
    path = saved / 'checkpoint'
    whole = path.read_text()
    path.write_text(whole[:-5] + ': }')

    def sleep(pause):
        if pause:
            path.write_text(whole)

    monkeypatch.setattr(checkpoint_files.time, 'sleep', sleep)
    assert checkpoint_files.read_state(str(saved)).newest == str(saved / 'ckpt-3')
