"""A training's word that it has ended."""

from object_detection.training import resume
from object_detection.training.checkpoints.following import (
    clear_finished,
    mark_finished,
    read_finished,
)
from object_detection.training.monitoring.run_types import TrainResult


def test_the_end_is_marked_and_unmarked(tmp_path):
    assert read_finished(tmp_path) is None
    mark_finished(tmp_path, 30, 'the data ended')
    assert (tmp_path / 'train' / 'ended.json').exists()
    assert read_finished(tmp_path) == (30, 'the data ended')
    mark_finished(str(tmp_path), 40, 'all steps are done')
    assert read_finished(str(tmp_path)).step == 40
    clear_finished(tmp_path)
    clear_finished(tmp_path)
    assert read_finished(tmp_path) is None


def test_a_training_beyond_its_steps_has_ended_for_a_reason_alone(tmp_path):
    for reason in ('', 'no better metric for long'):
        result = TrainResult(step=40, checkpoint=None, losses={}, reason=reason)
        resume.mark_finished(str(tmp_path), result, 30)
        assert read_finished(tmp_path) == ((40, reason) if reason else None)


def test_a_file_that_says_nothing_is_no_end(tmp_path, caplog):
    mark_finished(tmp_path, 30, 'the data ended')
    for text in ('', '[]', '{"step": "x", "reason": ""}'):
        (tmp_path / 'train' / 'ended.json').write_text(text)
        assert read_finished(tmp_path) is None
    assert caplog.text.count('cannot be read') == 3
