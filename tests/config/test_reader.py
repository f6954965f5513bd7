import pytest
from google.protobuf import text_format

from object_detection.config.reader import ConfigError, parse_pipeline, read_pipeline
from object_detection.config.show import write_pipeline
from object_detection.errors import Problems
from tests import rows
from tests.validation.pipelines import sound_pipeline, write_files


@rows.parametrize(
    ('text', 'message'),
    [
        (
            'model {\n  faster_rcnn {\n    num_clases: 3\n  }\n}',
            'p:3:5: FasterRcnn has no field `num_clases`; did you mean `num_classes`?',
        ),
        (
            'train_config { fine_tune_checkpoint_version: V3 }',
            'p:1:46: CheckpointVersion has no value `V3`; its values: UNKNOWN, V1, V2.',
        ),
        (
            'train_config {\n batch_size: 1\n batch_size: 2\n}',
            'p:3:14: TrainConfig.batch_size is written twice; it takes one value.',
        ),
        (
            'model { faster_rcnn {} ssd {} }',
            'p:1:24: only one of `faster_rcnn` and `ssd` may be set (oneof model).',
        ),
        ('train_config { batch_size: -1 }', 'p:1:28: Value out of range: -1.'),
        (
            'train_config { sink { name: "csv" } }',
            'p:1:16: TrainConfig has no field `sink`; in its place there is `callback`, whose '
            'parts have other methods (docs/howto/plugins.md).',
        ),
        ('model { faster_rcnn {', 'p:1:21: Expected "}".'),
        ('{"model": {}}', 'p:1:1: expected the name of a field here.'),
        ('train_config { batch_size: two }', "p:1:28: Couldn't parse integer: two."),
    ],
)
def test_errors_name_the_position_and_the_remedy(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text, 'p')
    assert str(caught.value) == message


UNKNOWN_NAMES = """train_config { batch: 1 num_stebs: 7 # }
 fine_tune_checkpoint_version: V3 precision: FLOAT31 quantum { a: "}" [] } optimiser {
 adam_optimizer { epsilom: '2' } } replicas_to_aggregat: [1, 2] num_steps: 9 }
"""
PLACES = ['1:16', '1:25', '2:32', '2:46', '2:54', '2:76', '3:19', '3:36']


def test_all_unknown_names_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(UNKNOWN_NAMES, 'p')
    assert [each.split(': ')[0] for each in caught.value.problems] == [f'p:{at}' for at in PLACES]
    found = Problems()
    config = parse_pipeline(UNKNOWN_NAMES, 'p', found).train_config
    assert found.sentences() == caught.value.problems
    # A message with an unknown name is read as the nearest one; single values are left out.
    assert (config.num_steps, config.optimizer.adam_optimizer.HasField('epsilon')) == (9, False)
    assert config.optimizer.HasField('adam_optimizer')


def test_other_mistakes_after_unknown_names_are_reported_next(tmp_path):
    path = tmp_path / 'p.config'
    path.write_text('model {} train_config { batch_size: 1 num_stebs: 7 batch_size: 2 }')
    with pytest.raises(ConfigError, match=r'^.*p\.config:1:39: TrainConfig has no field `num_s.*$'):
        read_pipeline(str(path), problems=Problems())
    path.write_text('train_config { batch: 1 }')
    found = Problems()
    override, settings = 'eval_config { num_exambles: 1 }', ['train_config.x=2', 'eval_config=3']
    read_pipeline(str(path), overrides_text=override, settings=settings, problems=found)
    starts = (f'{path}:1:16: ', '--config_override:1:15: ', '--set train_config.x', '--set eval_c')
    assert len(found.sentences()) == len(starts)
    assert all(map(str.startswith, found.sentences(), starts))


def test_names_of_other_messages_are_recognised():
    with pytest.raises(ConfigError, match=r'its fields: model, .*`batch_size` is a field of'):
        parse_pipeline('batch_size: 3', 'p')
    with pytest.raises(ConfigError, match=r'`item` is a field of StringIntLabelMap'):
        parse_pipeline('item { id: 1 }', 'p')


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'there is no such file'),
        ('folder', 'is a folder'),
        (b'\xff\xd8\xff\xe0', 'is not a text file'),
    ],
)
def test_wrong_kinds_of_files_get_one_sentence(tmp_path, content, message):
    path = tmp_path / 'x'
    if content == 'folder':
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_pipeline(str(path))
    assert str(path) in str(caught.value)
    assert '\n' not in str(caught.value)


def test_overrides_merge_as_a_second_text_proto(tmp_path):
    path = write_files(tmp_path)
    override = 'train_config { batch_size: 7 } eval_config { metrics_set: "more" }'
    pipeline = read_pipeline(str(path), overrides_text=override)
    expected = sound_pipeline(tmp_path)
    text_format.Merge(override, expected)
    assert pipeline == expected
    assert pipeline.eval_config.metrics_set[-1] == 'more'
    assert len(pipeline.eval_config.metrics_set) == 3


def test_overrides_may_be_a_file(tmp_path):
    path = write_files(tmp_path)
    override = tmp_path / 'override.config'
    override.write_text('train_config { batch_size: 7 }')
    pipeline = read_pipeline(str(path), overrides_text=str(override))
    assert pipeline.train_config.batch_size == 7


def test_errors_of_overrides_name_their_source(tmp_path):
    path = str(write_files(tmp_path))
    with pytest.raises(ConfigError, match=r'^--config_override:1:16: TrainConfig has no field'):
        read_pipeline(path, overrides_text='train_config { batch: 7 }')
    with pytest.raises(ConfigError, match=r'expected a text proto.*Received: no_such_file'):
        read_pipeline(path, overrides_text='no_such_file')


def test_settings_come_last_and_in_order(tmp_path):
    pipeline = read_pipeline(
        str(write_files(tmp_path)),
        overrides_text='train_config { batch_size: 7 }',
        settings=['train_config.batch_size=8', 'train_config.batch_size=9'],
    )
    assert pipeline.train_config.batch_size == 9


def test_what_is_written_reads_back(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    path = tmp_path / 'new' / 'pipeline.config'
    write_pipeline(pipeline, str(path))
    assert read_pipeline(str(path)) == pipeline
    assert [entry.name for entry in path.parent.iterdir()] == ['pipeline.config']


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    pipeline = sound_pipeline(tmp_path)
    path = tmp_path / 'out' / 'pipeline.config'
    write_pipeline(pipeline, str(path))
    before = path.read_text()

    def fail(*_):
        raise OSError('disk full')

    monkeypatch.setattr('os.replace', fail)
    pipeline.train_config.batch_size = 5
    with pytest.raises(OSError, match='disk full'):
        write_pipeline(pipeline, str(path))
    assert path.read_text() == before
    assert [entry.name for entry in path.parent.iterdir()] == ['pipeline.config']


@rows.parametrize('encoding', ['utf-8-sig', 'utf-16'])
def test_a_byte_order_mark_is_no_part_of_a_config(tmp_path, encoding):
    path = tmp_path / 'a.config'
    path.write_bytes('train_config { batch_size: 3 }'.encode(encoding))
    assert read_pipeline(str(path)).train_config.batch_size == 3


def test_an_invisible_character_in_a_config_is_named():
    with pytest.raises(ConfigError, match=r'line 2, column 2 .*<U\+200B ZERO WIDTH SPACE>'):
        parse_pipeline('train_config {\n \u200bbatch_size: 3 }', 'a.config')
