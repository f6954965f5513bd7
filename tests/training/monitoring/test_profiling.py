"""Profiles of a range of steps."""

import logging

import pytest
import tensorflow as tf

from object_detection.errors import ConfigError
from object_detection.training.loop import train
from object_detection.training.monitoring import profiling
from object_detection.training.monitoring.profiling import ProfiledSteps
from object_detection.training.monitoring.run_types import Intervals
from tests import rows
from tests.training import fakes


def _train(directory, num_steps, profile, **intervals):
    return train(
        fakes.pipeline_config(),
        directory,
        num_steps=num_steps,
        seed=1,
        record_summaries=False,
        intervals=Intervals(profile=profile, **intervals),
    )


def test_the_flag():
    assert profiling.parse(None) is None
    assert profiling.parse('100, 110') == (100, 110)
    assert profiling.parse('7') == (7, 7)


@rows.parametrize('text', ['', 'a,b', '0,5', '5,4', '1,2,3', '-1,4'])
def test_what_is_no_range_is_reported(text):
    with pytest.raises(ConfigError, match='--profile_steps: expected the first and the last step'):
        profiling.parse(text)


def test_steps_after_the_end_of_the_training_are_reported():
    profiling.check(None, 10)
    profiling.check(ProfiledSteps(1, 10), 10)
    with pytest.raises(ConfigError, match=r'ends at step 10\. Received: 8,11'):
        profiling.check(ProfiledSteps(8, 11), 10)


def test_calls_are_cut_where_a_profile_starts_and_ends():
    intervals = Intervals(checkpoint=0, call=50, profile=ProfiledSteps(31, 40))
    assert [intervals.steps_to_next(step, 1000) for step in (0, 30, 40, 90)] == [30, 10, 50, 10]


def test_a_training_writes_a_profile(tmp_path, monkeypatch, caplog):
    fakes.patch_builders(monkeypatch.setattr)
    with caplog.at_level(logging.INFO):
        _train(tmp_path, 12, ProfiledSteps(5, 8), call=6)
    assert list((tmp_path / 'train' / 'profile').rglob('*.xplane.pb'))
    assert f'steps 5 to 8 are profiled in {tmp_path}/train/profile' in caplog.text


class _Profiler:
    """Records what is called, and fails where told."""

    def __init__(self, monkeypatch, fails_at=None):
        self.calls = []
        for name in ('start', 'stop'):
            monkeypatch.setattr(tf.profiler.experimental, name, self._action(name, fails_at))

    def _action(self, name, fails_at):
        def action(*_):
            self.calls.append(name)
            if name == fails_at:
                raise tf.errors.UnavailableError(None, None, 'no profiler here')

        return action


@pytest.mark.parametrize(('fails_at', 'calls'), [('start', ['start']), ('stop', ['start', 'stop'])])
def test_a_profile_that_fails_does_not_end_the_training(
    tmp_path, monkeypatch, caplog, fails_at, calls
):
    fakes.patch_builders(monkeypatch.setattr)
    profiler = _Profiler(monkeypatch, fails_at)
    assert _train(tmp_path, 6, ProfiledSteps(2, 4)).step == 6
    assert profiler.calls == calls
    assert 'the profile cannot be made: no profiler here' in caplog.text


def test_a_run_that_resumes_after_the_steps_profiles_nothing(tmp_path, monkeypatch, caplog):
    profiler = _Profiler(monkeypatch)
    profile = profiling.StepProfile(ProfiledSteps(2, 4), str(tmp_path))
    for step in (4, 5):
        with profile.call(step):
            pass
        profile.after(step + 1, lambda: None)
    assert not profiler.calls
    assert caplog.text.count('nothing is profiled: step 4 is done already') == 1


def test_a_profile_that_the_end_of_the_run_cuts_off_is_written(tmp_path, monkeypatch):
    profiler = _Profiler(monkeypatch)
    profile = profiling.StepProfile(ProfiledSteps(2, 40), str(tmp_path))
    waits = []
    with profile.call(1):
        pass
    profile.after(2, lambda: waits.append(1))
    profile.close(2)
    profile.close(2)
    assert profiler.calls == ['start', 'stop']
    assert not waits
