"""Configs that need no file."""

import pytest

from object_detection.config import show, synthetic_data
from object_detection.errors import ConfigError
from object_detection.validation import validate
from tests.validation import pipelines


@pytest.fixture
def pipeline(tmp_path):
    """A sound config, of whose files there is none."""
    sound = pipelines.sound_pipeline(tmp_path)
    sound.train_input_reader.aspect_ratio_buckets.add(height=32, width=64)
    sound.train_config.fine_tune_checkpoint = 'PATH_TO_BE_CONFIGURED/model.ckpt'
    sound.train_config.fine_tune_checkpoint_type = 'classification'
    sound.train_config.class_weight.add(name='a', weight=2)
    sound.train_input_reader.label_map_path = 'PATH_TO_BE_CONFIGURED/labels'
    sound.eval_input_reader[0].tf_record_input_reader.input_path[0] = 'missing'
    sound.eval_input_reader[0].label_map_path = 'missing'
    resizer = sound.model.faster_rcnn.image_resizer
    resizer.keep_aspect_ratio_resizer.max_dimension = 1024
    return sound


def test_no_file_is_needed(pipeline):
    before = pipeline.SerializeToString()
    with pytest.raises(ConfigError, match='PATH_TO_BE_CONFIGURED'):
        validate.validate(pipeline, for_what=['train', 'eval'])
    changed = synthetic_data.without_files(pipeline)
    validate.validate(changed, for_what=['train', 'eval'])
    assert pipeline.SerializeToString() == before
    assert not changed.train_config.fine_tune_checkpoint
    readers = (changed.train_input_reader, changed.eval_input_reader[0])
    assert [r.synthetic_input_reader.num_examples for r in readers] == [118287, 5000]
    # What the step's work depends on stays.
    assert all(reader.load_instance_masks for reader in readers)
    assert changed.train_input_reader.aspect_ratio_buckets[0].width == 64


def test_numbers_of_a_synthetic_reader_stay(pipeline):
    pipeline.train_input_reader.synthetic_input_reader.num_examples = 7
    changed = synthetic_data.without_files(pipeline)
    assert changed.train_input_reader.synthetic_input_reader.num_examples == 7


def test_parts_that_are_not_set_stay_so(pipeline):
    for part in ('train_config', 'train_input_reader'):
        pipeline.ClearField(part)
    changed = synthetic_data.without_files(pipeline)
    assert not changed.HasField('train_config')
    assert not changed.HasField('train_input_reader')


@pytest.mark.parametrize('is_synthetic', [False, True])
def test_a_training_resumes_with_the_kind_of_data_it_began_with(pipeline, tmp_path, is_synthetic):
    synthetic = synthetic_data.without_files(pipeline)
    pair = (synthetic, pipeline) if is_synthetic else (pipeline, synthetic)
    earlier = str(tmp_path / 'resolved.config')
    synthetic_data.check_same_kind_of_data(pair[1], earlier)  # There is none.
    show.write_pipeline(pair[0], earlier)
    synthetic_data.check_same_kind_of_data(pair[0], earlier)
    kind = 'synthetic' if is_synthetic else 'real'
    with pytest.raises(ConfigError, match=f'another model_dir.*a training on {kind} data'):
        synthetic_data.check_same_kind_of_data(pair[1], earlier)
