from google.protobuf import text_format

from object_detection.config.show import to_text
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests.validation.pipelines import sound_pipeline


def test_the_output_reads_back_as_the_same_config(tmp_path):
    pipeline = sound_pipeline(tmp_path)
    pipeline.eval_config.super_categories['pet'] = 'cat,dog'
    assert text_format.Parse(to_text(pipeline), TrainEvalPipelineConfig()) == pipeline


def test_defaults_follow_a_comment_mark(tmp_path):
    lines = to_text(sound_pipeline(tmp_path)).splitlines()
    assert '    # first_stage_minibatch_size: 256' in lines
    assert '    first_stage_max_proposals: 20' in lines
    assert '  # precision: FLOAT32' in lines


def test_fields_without_effect_or_default_are_left_out(tmp_path):
    text = to_text(sound_pipeline(tmp_path))
    assert 'batch_queue_capacity' not in text  # Deprecated.
    assert 'sync_replicas' not in text  # Without effect.
    assert 'hard_example_miner' not in text  # A message that is not set.


def test_all_reference_configs_survive(shared):
    for path in sorted((shared / 'reference' / 'configs').rglob('*.config')):
        pipeline = text_format.Parse(path.read_text(), TrainEvalPipelineConfig())
        again = text_format.Parse(to_text(pipeline), TrainEvalPipelineConfig())
        assert again == pipeline, path.name
