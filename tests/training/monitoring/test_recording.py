"""What a run tells: the progress line, the history file, TensorBoard pictures."""

import dataclasses
import io
import json
import logging
import re

import numpy as np
import pytest
import rich.console
import tensorflow as tf
from tensorboard import context as tensorboard_context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import plugin_data_pb2

from object_detection.builders import callback_builder
from object_detection.builders.callback_builder import End, Start, StepRecord
from object_detection.core.fields import InputFields
from object_detection.errors import UserError
from object_detection.meta_architectures import tracing
from object_detection.protos.plugin_pb2 import Plugin
from object_detection.training import status
from object_detection.training.monitoring import history, hyperparameters, progress, recorder
from object_detection.training.monitoring.log_files import JobFiles
from object_detection.visualization import drawing, tensorboard
from tests import rows
from tests.training import fakes

RECORD = StepRecord(
    step=25,
    losses={'Loss/RPNLoss/objectness_loss': 0.25, 'Loss/total_loss': 1.5},
    learning_rate=0.02,
    images_per_second=4.0,
)


def test_a_record_as_text():
    assert progress.describe(RECORD, num_steps=100, batch_size=8) == (
        'loss 1.500 (RPN/objectness 0.250)  lr 0.02  4 images/s  0:02:30 to go'
    )


@rows.parametrize(
    ('name', 'short'),
    [
        ('Loss/RPNLoss/localization_loss', 'RPN/localization'),
        ('Loss/BoxClassifierLoss/mask_loss', 'BoxClassifier/mask'),
        ('Loss/regularization_loss', 'regularization'),
    ],
)
def test_short_names(name, short):
    assert history.short_name(name) == short


def test_log_lines(caplog):
    lines = progress.LogLines()
    lines.start(0, 100, 8)
    with caplog.at_level(logging.INFO):
        caplog.clear()
        lines.update(RECORD)
        assert not caplog.messages
        lines.log(RECORD)
    lines.close()
    assert caplog.messages[0].startswith('step 25/100  loss 1.500')


def test_live_line():
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=120)
    line = progress.LiveLine(console)
    line.start(0, 100, 8)
    line.update(RECORD)
    line.log(RECORD)
    line.close()
    text = console.file.getvalue()
    assert '25/100' in text
    assert 'lr 0.02' in text


def _screen(width: int, num_steps: int = 180_000) -> list[str]:
    """The last lines that a terminal of this width shows of a training with all losses."""
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=width)
    line = progress.LiveLine(console)
    line.start(0, num_steps, 8)
    kinds = ('RPNLoss/localization', 'RPNLoss/objectness', 'BoxClassifierLoss/localization')
    losses = {f'Loss/{kind}_loss': 0.25 for kind in kinds} | {'Loss/total_loss': 1.5}
    line.update(dataclasses.replace(RECORD, step=120_000, losses=losses, waiting_share=0.02))
    line.close()
    text = re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', console.file.getvalue())
    return [row for row in re.split(r'[\r\n]+', text) if row.strip()]


@rows.parametrize('width', [80, 140])
def test_step_bar_and_time_to_go_have_room_on_a_terminal(width):
    lines = _screen(width)
    (bar_index,) = (index for index, line in enumerate(lines) if 'step 120000' in line)
    bar, losses = lines[bar_index], lines[bar_index + 1]
    assert bar.startswith('step 120000/180000 ━')
    assert 'loss 1.500  1 day, 9:20:00 to go  4 images/s' in bar
    assert '…' not in bar
    assert losses.startswith('  RPN/localization 0.250 RPN/objectness 0.250')
    assert 'BoxClassifier/localization 0.250' in ' '.join(lines[bar_index + 1 :])
    assert max(map(len, lines)) <= width
    assert ('lr 0.02  2% waiting for input' in bar) == (width == 140)


def test_log_lines_come_by_time_where_steps_are_slow(caplog):
    now = [0.0]
    lines = progress.LogLines(clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        lines.start(0, 100, 8)
        caplog.clear()
        for seconds in range(0, 100, 10):
            now[0] = float(seconds)
            lines.update(dataclasses.replace(RECORD, step=seconds))
        assert [text.split()[1] for text in caplog.messages] == ['30/100', '60/100', '90/100']
        # A step has one line, also where it is slow and a line is due.
        lines.log(dataclasses.replace(RECORD, step=90))
        assert len(caplog.messages) == 3
        lines.log(dataclasses.replace(RECORD, step=91))
        now[0] += 29.0
        lines.update(dataclasses.replace(RECORD, step=92))
        assert len(caplog.messages) == 4


def test_no_live_line_without_a_terminal(capsys):
    assert isinstance(progress.automatic(), progress.LogLines)


def test_history_drops_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / 'train' / 'history.jsonl'
    first = history.History(path)
    first.on_start(Start('', 0, 50, 2))
    for step in (10, 20, 25):
        first.on_step(StepRecord(step, {'Loss/total_loss': 1.0}, 0.1, None))
    with path.open('a') as file:
        file.write('{"step": 30, "loss')
    second = history.History(path)
    second.on_start(Start('', 20, 50, 2))
    second.on_step(RECORD)
    entries = history.read(path)
    assert [entry['step'] for entry in entries] == [10, 20, 25]
    assert entries[-1]['losses'] == dict(RECORD.losses)
    assert json.loads(path.read_text().splitlines()[0])['images_per_second'] is None


def _batch(num_images=2):
    batch = next(iter(fakes.dataset(num_images, num_images)))
    return {name: tensor.numpy() for name, tensor in batch.items()}


def test_input_pictures_show_true_colours_without_padding():
    batch = _batch()
    batch[InputFields.NUM_GROUNDTRUTH_BOXES][:] = 0
    batch[InputFields.IMAGE][:] = [200.4, 100.0, 300.0]
    (picture, _) = tensorboard.input_pictures(batch)
    # 8 x 8 with two columns of padding, 40 times enlarged.
    assert picture.shape == (320, 240, 3)
    assert picture.dtype == np.uint8
    assert np.all(picture == [200, 100, 255])


def test_input_pictures_scale_boxes_by_the_padded_image():
    batch = _batch(1)
    batch[InputFields.IMAGE][:] = 0
    batch[InputFields.NUM_GROUNDTRUTH_BOXES][:] = 1
    batch[InputFields.GROUNDTRUTH_BOXES][0, 0] = [0.0, 0.5, 1.0, 0.75]
    (picture,) = tensorboard.input_pictures(batch, {1: ''})
    columns = np.flatnonzero(picture[200].any(axis=-1))
    # Columns 4 to 6 of 8, each 40 pixels wide in the picture.
    assert abs(columns.min() - 160) <= 2
    assert abs(columns.max() - 240) <= 3


@rows.parametrize('form', ['crops', 'images'])
def test_masks_of_both_forms_are_drawn(form):
    batch = _batch(1)
    batch[InputFields.IMAGE][:] = 0
    batch[InputFields.NUM_GROUNDTRUTH_BOXES][:] = 1
    batch[InputFields.GROUNDTRUTH_BOXES][0, 0] = [0.0, 0.0, 1.0, 0.75]
    if form == 'crops':
        crops = np.zeros([1, 2, 4, 4], np.uint8)
        crops[0, 0, :, :2] = 255
        batch[InputFields.GROUNDTRUTH_INSTANCE_MASK_CROPS] = crops
    else:
        masks = np.zeros([1, 2, 8, 8], np.uint8)
        masks[0, 0, :, :3] = 1
        batch[InputFields.GROUNDTRUTH_INSTANCE_MASKS] = masks
    (picture,) = tensorboard.input_pictures(batch, {1: ''})
    assert picture[200, 60].any()
    assert not picture[200, 180].any()


def test_visible_keypoints_are_drawn():
    batch = _batch(1)
    batch[InputFields.IMAGE][:] = 0
    batch[InputFields.NUM_GROUNDTRUTH_BOXES][:] = 1
    batch[InputFields.GROUNDTRUTH_BOXES][0, 0] = [0.0, 0.0, 1.0, 0.75]
    keypoints = np.full([1, 2, 2, 2], np.nan, np.float32)
    keypoints[0, 0] = [[0.5, 0.25], [0.5, 0.5]]
    batch[InputFields.GROUNDTRUTH_KEYPOINTS] = keypoints
    visible = np.array([[[True, False], [False, False]]])
    batch[InputFields.GROUNDTRUTH_KEYPOINT_VISIBILITIES] = visible
    (picture,) = tensorboard.input_pictures(batch, {1: ''})
    # The images are 8 x 8, 40 times enlarged.
    assert picture[160, 80].any()
    assert not picture[150:170, 150:170].any()


def test_detected_keypoints_are_joined_unless_they_are_doubtful():
    batch = _batch(1)
    batch[InputFields.IMAGE][:] = 0
    batch[InputFields.NUM_GROUNDTRUTH_BOXES][:] = 0
    detections = {
        'detection_boxes': np.array([[[0, 0, 1, 1]]], np.float32),
        'detection_scores': np.array([[0.9]], np.float32),
        'detection_classes': np.zeros([1, 1], np.float32),
        'detection_keypoints': np.array([[[[0.5, 0.25], [0.5, 0.75], [0.9, 0.5]]]], np.float32),
        'detection_keypoint_scores': np.array([[[0.9, 0.9, 0.01]]], np.float32),
        'num_detections': np.array([1.0], np.float32),
    }
    style = tensorboard.PictureStyle(keypoint_edges=((0, 1), (1, 2)), shows_labels=False)
    (picture,) = tensorboard.detection_pictures(batch, detections, limit=1, style=style)
    # 8 x 6 pixels, 40 times enlarged.
    right = picture[-320:, -240:]
    color = drawing.class_color(1)
    np.testing.assert_array_equal(right[160, 70:170], np.tile(color, (100, 1)))
    assert not right[200:300, 10:230].any()


def test_detection_pictures_are_next_to_the_ground_truth():
    batch = _batch(2)
    detections = {
        'detection_boxes': np.array([[[0, 0, 1, 0.5]], [[0, 0, 0, 0]]], np.float32),
        'detection_scores': np.array([[0.9], [0.0]], np.float32),
        'detection_classes': np.zeros([2, 1], np.float32),
        'detection_masks': np.ones([2, 1, 4, 4], np.float32),
        'num_detections': np.array([1.0, 0.0], np.float32),
    }
    pictures = tensorboard.detection_pictures(batch, detections, {1: 'cat'}, limit=5)
    assert len(pictures) == 2
    assert all(picture.shape[1] > 480 for picture in pictures)
    assert len(tensorboard.detection_pictures(batch, detections, limit=1)) == 1

    def right(**style):
        style = tensorboard.PictureStyle(**style)
        (picture,) = tensorboard.detection_pictures(
            batch, detections, {1: 'cat'}, limit=1, style=style
        )
        return picture[:, picture.shape[1] // 2 :]

    def pixels(picture, color):
        return int((picture == color).all(axis=-1).sum())

    # Labels are drawn on grounds of their class's colour, which cover less without their parts.
    color = drawing.class_color(1)
    full, without_score = right(), right(shows_scores=False)
    nothing = right(shows_scores=False, shows_labels=False)
    assert pixels(full, color) > pixels(without_score, color) > pixels(nothing, color) > 0
    assert pixels(full, (1, 254, 3)) == 0
    assert pixels(right(groundtruth_color='#01fe03'), (1, 254, 3)) > 0


@pytest.mark.filterwarnings('ignore:html5lib')
def test_curves_for_tensorboards_pr_curves(tmp_path):
    # Imported here, since the module warns of a library that TensorBoard brings.
    from tensorboard.plugins.pr_curve import pr_curves_plugin

    writer = tensorboard.EventWriter(str(tmp_path))
    # Two of four objects are found by the best two detections; the third is wrong.
    counts = np.array([[2, 2, 1, 0], [1, 0, 0, 0], [2, 2, 3, 4]])
    writer.curves({'boxes': counts}, step=7)
    writer.close()
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path)).Reload()
    context = base_plugin.TBContext(
        data_provider=data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    )
    plugin = pr_curves_plugin.PrCurvesPlugin(context)
    ((curve,),) = plugin.pr_curves_impl(
        tensorboard_context.RequestContext(), '', ['.'], 'precision_recall/boxes'
    ).values()
    assert curve['step'] == 7
    # The end without a detection is left out by TensorBoard.
    assert curve['precision'] == pytest.approx([2 / 3, 1, 1])
    assert curve['recall'] == pytest.approx([0.5, 0.5, 0.25])
    assert (curve['true_positives'], curve['false_negatives']) == ([2, 2, 1], [2, 2, 3])


def test_hyperparameters_are_one_row_of_all_folders(tmp_path):
    config = fakes.pipeline_config()
    config.train_config.batch_size = 3
    config.train_config.optimizer.momentum_optimizer.momentum_optimizer_value = 0.5
    values, trial = hyperparameters.of_training(config, tmp_path)
    assert values['train_config.batch_size'] == 3
    path = 'train_config.optimizer.momentum_optimizer.momentum_optimizer_value'
    assert values[path] == pytest.approx(0.5)
    assert not any('input_reader' in name for name in values)
    assert hyperparameters.of_training(config, tmp_path / 'eval')[1] == trial
    assert hyperparameters.of_training(config, tmp_path / 'eval' / 'a' / 'b')[1] == trial
    assert hyperparameters.of_training(config, tmp_path / 'evaluated')[1] != trial
    writer = tensorboard.EventWriter(str(tmp_path))
    writer.hyperparameters(values, trial)
    writer.close()
    (path,) = tmp_path.glob('*tfevents*')
    (event,) = [e for e in tf.compat.v1.train.summary_iterator(str(path)) if e.summary.value]
    (value,) = event.summary.value
    content = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
    assert content.session_start_info.group_name == trial
    assert content.session_start_info.hparams['train_config.batch_size'].number_value == 3


def test_an_entry_after_a_truncated_line_is_separate(tmp_path, caplog):
    path = tmp_path / 'history.jsonl'
    history.append(path, {'step': 1})
    with path.open('a') as file:
        file.write('{"step": 2, "lo')
    history.append(path, {'step': 3})
    history.append(path, {'step': 4})
    with caplog.at_level(logging.WARNING):
        assert [entry['step'] for entry in history.read(path)] == [1, 3, 4]
    assert f'{path}: line 2 cannot be read' in caplog.text


def test_the_history_survives_a_kill_while_it_is_rewritten(tmp_path, monkeypatch):
    path = tmp_path / 'history.jsonl'
    history.append(path, {'step': 1})

    def kill(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr('os.replace', kill)
    with pytest.raises(KeyboardInterrupt):
        history.History(path).on_start(Start('', 5, 9, 2))
    assert history.read(path) == [{'step': 1}]


def test_the_history_has_slow_steps_before_the_first_line_of_the_log(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(recorder.time, 'monotonic', lambda: now[0])
    (tmp_path / 'train').mkdir()
    records = recorder.Recorder(
        str(tmp_path), 0, progress=progress.LogLines(), job_files=JobFiles(record_summaries=False)
    )
    records.start(0, 300, 4)
    for step, seconds in ((1, 29), (2, 1), (3, 10), (4, 20), (5, 0)):
        now[0] += seconds
        records.update(dataclasses.replace(RECORD, step=step))
    # The step of a line of the log is in the history already.
    records.log(dataclasses.replace(RECORD, step=4))
    records.log(dataclasses.replace(RECORD, step=6))
    steps = [entry['step'] for entry in history.read(tmp_path / 'train' / history.FILE_NAME)]
    assert steps == [2, 4, 6]
    assert status.read(tmp_path).step == 6


@dataclasses.dataclass
class ListCallback(callback_builder.Callback):
    """Keeps what it is given."""

    title: str = ''

    def on_start(self, start):
        self.calls = [start]

    def on_step(self, record):
        self.calls.append(record)


def test_callbacks_get_the_values_that_tensorboard_gets(tmp_path, monkeypatch):
    table = callback_builder.CALLBACKS
    monkeypatch.setattr(table, '_rows', {**table._rows, 'list': ListCallback})
    (tmp_path / 'train').mkdir()
    built = [callback_builder.build(callback_builder.parse(f'list:title={x}')) for x in 'ab']
    assert [each.title for each in built] == ['a', 'b']
    records = recorder.Recorder(
        str(tmp_path),
        4,
        progress=progress.Silent(),
        job_files=JobFiles(record_summaries=False),
        callbacks=callback_builder.Callbacks(built),
    )
    written = {}
    monkeypatch.setattr(records._events, 'scalars', lambda values, step: written.update(values))
    records.start(4, 10, 2)
    records.log(RECORD)
    record = dataclasses.replace(RECORD, left_out={'records': 3}, batch_size=2)
    records.summarize(record)
    records.close()
    assert [each.calls for each in built] == [[Start(str(tmp_path), 4, 10, 2), record]] * 2
    assert written == record.values
    assert written['Loss/total_loss'] == RECORD.losses['Loss/total_loss']
    assert written['left_out/records'] == 3
    assert written['steps_per_sec'] == RECORD.images_per_second / 2


@rows.parametrize('name', ['tensorboard', 'nothing'])
def test_callbacks_that_are_no_plugins_are_refused(name):
    config = Plugin(name=name)
    (problem,) = tracing.problems(callback_builder.build, config, 'train_config.callback[0]')
    assert problem.startswith('train_config.callback[0].name: expected a')
    assert f"Received: '{name}'" in problem


class Failing(callback_builder.Callback):
    """Fails or answers as it is told."""

    def __init__(self, **answers):
        self.answers, self.calls = answers, []

    def __getattribute__(self, name):
        if not name.startswith('on_'):
            return super().__getattribute__(name)

        def answer(record):
            self.calls.append(name)
            given = self.answers.get(name)
            if isinstance(given, Exception):
                raise given
            return given

        return answer


def test_the_first_error_or_request_of_a_callback_ends_a_training(caplog):
    first, second = Failing(on_step=OSError('no space')), Failing(on_step='enough')
    both = callback_builder.Callbacks([first, second])
    both.on_start(Start('', 0, 9, 2))
    assert both.reason is None
    both.on_step(RECORD)
    assert both.reason == callback_builder.FAILED
    both.on_checkpoint(callback_builder.CheckpointRecord(50, 'ckpt-1'))
    both.on_end(End(50))
    assert first.calls == ['on_start', 'on_step', 'on_end']
    assert second.calls == ['on_start', 'on_end']
    message = (
        rf'callback Failing, on_step at step {RECORD.step}: OSError: no space \(.*, line \d+\)'
    )
    with pytest.raises(callback_builder.CallbackError, match=message) as caught:
        both.check()
    assert isinstance(caught.value.__cause__, OSError)
    assert 'no space' in caplog.text

    asking = callback_builder.Callbacks([second])
    asking.on_start(Start('', 0, 9, 2))
    asking.on_step(RECORD)
    asking.check()
    assert asking.reason == 'enough'


def test_what_a_callback_returns_is_checked():
    callbacks = callback_builder.Callbacks([Failing(on_step=True)])
    callbacks.on_start(Start('', 0, 9, 2))
    callbacks.on_step(RECORD)
    with pytest.raises(callback_builder.CallbackError, match=r'a sentence .* Received: True'):
        callbacks.check()
    with pytest.raises(
        callback_builder.CallbackError, match='Failing, on_start at step 0: KeyError'
    ):
        callback_builder.Callbacks([Failing(on_start=KeyError('a'))]).on_start(Start('', 0, 9, 2))
    for text in ('', ':a=1', 'wandb:project'):
        with pytest.raises(UserError, match='--callbacks: expected NAME or NAME:OPTION=VALUE'):
            callback_builder.parse(text)
