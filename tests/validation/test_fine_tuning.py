from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import train_config
from tests import rows


def problems(**fields) -> list[str]:
    pipeline = TrainEvalPipelineConfig()
    for name, value in fields.items():
        setattr(pipeline.train_config, name, value)
    return list(train_config.check_fine_tuning(pipeline))


@rows.parametrize('name', ['ckpt-3', 'folder', 'resnet50.weights.h5'])
def test_what_can_be_fine_tuned_from(tmp_path, name):
    (tmp_path / 'ckpt-3.index').touch()
    (tmp_path / 'folder').mkdir(exist_ok=True)
    (tmp_path / 'folder' / 'checkpoint').touch()
    (tmp_path / 'resnet50.weights.h5').touch()
    assert problems(fine_tune_checkpoint=str(tmp_path / name)) == []


def test_nothing_is_wrong_without_a_checkpoint():
    assert problems() == problems(fine_tune_checkpoint_type='detection') == []


@rows.parametrize('name', ['ckpt-3', 'empty'])
def test_a_path_that_leads_nowhere(tmp_path, name):
    (tmp_path / 'empty').mkdir(exist_ok=True)
    (problem,) = problems(fine_tune_checkpoint=str(tmp_path / name))
    assert problem.startswith('train_config.fine_tune_checkpoint: expected the prefix')
    assert str(tmp_path / name) in problem


def test_types(tmp_path):
    (problem,) = problems(fine_tune_checkpoint_type='fine_tune')
    assert 'expected one of classification, detection, full' in problem
    assert "is 'detection'" in problem
    path = tmp_path / 'resnet50_notop.h5'
    path.touch()
    (problem,) = problems(fine_tune_checkpoint=str(path), from_detection_checkpoint=True)
    assert problem.endswith("expected 'classification'. Received: 'detection'.")
    options = {'load_all_detection_checkpoint_vars': True}
    (problem,) = problems(fine_tune_checkpoint=str(path), **options)
    assert problem.startswith('train_config.load_all_detection_checkpoint_vars takes all that')
